"""Prediction meets wire: a gloo job moves the bytes and takes the time that its placement says."""

from __future__ import annotations

import pytest

from fabric.fabric import Fabric
from fabric.wire import EDGE_BYTES, IN_ORDER, LANES, RAILWEAVE, OnTheWire, compare


@pytest.fixture(scope="module")
def both(fabric: Fabric) -> dict[str, OnTheWire]:
    return compare(fabric)


def test_the_two_placements_differ(both: dict[str, OnTheWire]) -> None:
    assert both[RAILWEAVE].predicted_spine_bytes == 2 * LANES * EDGE_BYTES
    assert both[IN_ORDER].predicted_spine_bytes > 10 * both[RAILWEAVE].predicted_spine_bytes


@pytest.mark.parametrize("name", [RAILWEAVE, IN_ORDER])
def test_the_spines_carry_the_bytes_that_were_predicted(
    both: dict[str, OnTheWire], name: str
) -> None:
    assert both[name].spine_bytes == pytest.approx(both[name].predicted_spine_bytes, rel=0.05)


def test_railweaves_placement_is_faster_by_the_factor_predicted(
    both: dict[str, OnTheWire],
) -> None:
    predicted = both[IN_ORDER].predicted_step_s / both[RAILWEAVE].predicted_step_s
    measured = both[IN_ORDER].step_s / both[RAILWEAVE].step_s
    assert predicted > 2
    assert measured == pytest.approx(predicted, rel=0.25)
