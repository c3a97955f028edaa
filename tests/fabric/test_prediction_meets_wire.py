"""Prediction meets wire: a gloo job moves the bytes and takes the time that its placement says."""

from __future__ import annotations

import pytest
from railweave.placement import PCG, place

from fabric.fabric import Fabric
from fabric.wire import OnTheWire, cluster_of, in_order, run_jobs

BUSY = ("h1-2",)
LANES, RING_BYTES, EDGE_BYTES, STEPS = 3, 2**20, 2**15, 7


def pipeline() -> PCG:
    """Two stages of three ranks: gradients go round in each, activations to and fro between."""
    rings = [
        {"name": f"dp{s}", "op": "all_reduce", "bytes": RING_BYTES}
        | {"ranks": [s * LANES + lane for lane in range(LANES)]}
        for s in range(2)
    ]
    edges = [
        {"name": f"{way}{lane}", "op": "send_recv", "bytes": EDGE_BYTES}
        | {"ranks": [lane, LANES + lane][::order]}
        for way, order in (("forward", 1), ("backward", -1))
        for lane in range(LANES)
    ]
    return PCG.parse(
        {"format": "railweave.pcg/1", "world_size": 2 * LANES, "groups": [*rings, *edges]}
    )


@pytest.fixture(scope="module")
def both(fabric: Fabric) -> dict[str, OnTheWire]:
    cluster, pcg = cluster_of(fabric.plan, BUSY), pipeline()
    placements = {
        "railweave": place(pcg, cluster, time_limit_s=1.0, seed=0).devices,
        "in order": in_order(pcg, cluster),
    }
    return run_jobs(fabric, pcg, cluster, placements, STEPS)


def test_the_two_placements_differ(both: dict[str, OnTheWire]) -> None:
    assert both["railweave"].predicted_spine_bytes == 2 * LANES * EDGE_BYTES
    assert both["in order"].predicted_spine_bytes > 10 * both["railweave"].predicted_spine_bytes


@pytest.mark.parametrize("name", ["railweave", "in order"])
def test_the_spines_carry_the_bytes_that_were_predicted(
    both: dict[str, OnTheWire], name: str
) -> None:
    assert both[name].spine_bytes == pytest.approx(both[name].predicted_spine_bytes, rel=0.05)


def test_railweaves_placement_is_faster_by_the_factor_predicted(
    both: dict[str, OnTheWire],
) -> None:
    predicted = both["in order"].predicted_step_s / both["railweave"].predicted_step_s
    measured = both["in order"].step_s / both["railweave"].step_s
    assert predicted > 2
    assert measured == pytest.approx(predicted, rel=0.25)
