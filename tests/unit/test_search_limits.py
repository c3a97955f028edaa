"""What means nothing as a limit, a seed, constraints or losses is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from railweave.placement import PCG, Cluster, InvalidInput, place
from railweave.placement.repair import repair

CLUSTER = Cluster.parse(
    {
        "format": "railweave.cluster/1",
        "name": "two",
        "tiers": [{"name": "spine", "bandwidth": 1e9, "latency": 1e-6}],
        "nodes": [{"name": name, "accelerator": "H100-SXM", "devices": 2} for name in ("a", "b")],
    }
)
JOB = PCG.parse(
    {
        "format": "railweave.pcg/1",
        "world_size": 2,
        "groups": [{"name": "dp", "op": "all_reduce", "ranks": [0, 1], "bytes": 8}],
    }
)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("time_limit_s", value) for value in (-1, -0.1, float("nan"), float("inf"), "1", None)),
        *(("seed", value) for value in (-1, 1.5, 2**31, 2**70, "0", None, True)),
        *(("constraints", value) for value in ({"whole_nodes": True}, "whole_nodes", False, [])),
    ],
)
def test_what_means_nothing_to_a_search_is_refused_by_name(name: str, value: Any) -> None:
    asked = {name: value}
    placement = place(JOB, CLUSTER)
    with pytest.raises(InvalidInput, match=name):
        place(JOB, CLUSTER, **asked)
    with pytest.raises(InvalidInput, match=name):
        repair(placement, JOB, CLUSTER, [("a", 0)], **asked)


def test_no_time_at_all_still_places() -> None:
    assert len(place(JOB, CLUSTER, time_limit_s=0, seed=2**31 - 1).devices) == 2


def test_a_name_in_place_of_a_list_of_losses_is_not_read_letter_by_letter() -> None:
    placement = place(JOB, CLUSTER)
    with pytest.raises(InvalidInput, match=r"lost: found the text 'ab'; give a list: \['ab'\]"):
        repair(placement, JOB, CLUSTER, "ab")
