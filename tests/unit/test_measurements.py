"""Measurements: what may be absent is, and what means nothing is refused."""

from __future__ import annotations

import pytest
from railweave.placement import InvalidInput
from railweave.placement.inference import Measurement


def test_a_probe_of_latency_alone_has_no_bandwidth() -> None:
    found = Measurement(a="n2", b="n1", round_trip_min_s=8e-6)
    assert found.bytes_per_s is None
    assert found.pair == ("n1", "n2")


def test_the_bandwidth_of_a_pair_is_its_slower_directions() -> None:
    found = Measurement(a="a", b="b", there_bytes_per_s=2e9, back_bytes_per_s=1e9)
    assert found.bytes_per_s == 1e9
    assert Measurement(a="a", b="b", back_bytes_per_s=3e9).bytes_per_s == 3e9


def test_a_measurement_survives_json() -> None:
    found = Measurement(a="a", b="b", hops=("10.0.0.1", "10.0.1.1"), round=3, lost="timed out")
    assert Measurement.model_validate_json(found.model_dump_json()) == found


def test_a_node_with_itself_and_a_loss_without_a_reason_are_refused() -> None:
    with pytest.raises(InvalidInput, match="as a is"):
        Measurement(a="a", b="a")
    with pytest.raises(InvalidInput, match="empty reason"):
        Measurement(a="a", b="b", lost="")
    with pytest.raises(InvalidInput, match="greater than 0"):
        Measurement(a="a", b="b", round_trip_min_s=0)
