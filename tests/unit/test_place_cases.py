"""Every case of the reference material gets its best answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from railweave.placement import PCG, Cluster, Infeasible, evaluate, place

CASES = (
    "alternating-names",
    "broadcast-to-8",
    "fits-one-zone",
    "gang-of-8-in-odd-leaves",
    "greedy-trap-4x4",
    "hybrid-shards",
    "medium-dense",
    "medium-experts",
    "one-device-short",
    "pipeline-10-over-3-racks",
    "ring-7-on-3-3-2-1",
    "segments-of-12-over-3x17",
    "small-job-in-one-node",
    "split-the-light-stage",
    "two-gangs-of-6",
)


@pytest.mark.parametrize("name", CASES)
def test_the_case_gets_its_best_answer(name: str, shared: Path) -> None:
    data = json.loads((shared / "cases" / f"{name}.json").read_text(encoding="utf-8"))
    cluster, pcg = Cluster.parse(data["cluster"]), PCG.parse(data["pcg"])
    if data.get("expect") == "infeasible":
        with pytest.raises(Infeasible, match="short"):
            place(pcg, cluster)
        return
    placement = place(pcg, cluster, time_limit_s=1.0, seed=0)
    assert placement.traffic_bytes == evaluate(pcg, cluster, placement.devices).traffic_bytes
    spine = placement.cross_spine_bytes
    if "best_cross_spine_bytes" in data:
        assert spine == pytest.approx(data["best_cross_spine_bytes"])
        assert placement.proved_optimal
    for tier, least in data.get("best_next_tier_bytes", {}).items():
        assert placement.traffic_bytes[tier] == pytest.approx(least)
    if "reference_traffic_bytes" in data:
        least = data["lower_bound_cross_spine_bytes"]
        assert least <= spine <= data["reference_traffic_bytes"][cluster.spine] * 1.0001
        assert placement.lower_bound_bytes <= spine


def test_all_cases_of_the_reference_material_are_here(shared: Path) -> None:
    assert {path.stem for path in (shared / "cases").glob("*.json")} == set(CASES)
