"""Small jobs under side constraints against all placements: the best of those that satisfy them."""

from __future__ import annotations

from typing import Any

import pytest
from effort import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from railweave.placement import PCG, Cluster, Evaluator, Infeasible, place
from railweave.placement.constraints import (
    AtMost,
    Balanced,
    Constraints,
    Pin,
    Segments,
    Together,
)
from railweave.placement.explain import explain_infeasible
from test_place_exact import assert_valid, clusters, every_placement, less, pcgs


@st.composite
def wishes(draw: st.DrawFn, pcg: PCG, cluster: Cluster) -> Constraints:
    tiers = st.sampled_from(cluster.tier_names)
    chosen = draw(st.sets(st.sampled_from(KINDS), min_size=1, max_size=3))
    names = [node.name for node in cluster.nodes]
    fields: dict[str, Any] = {}
    if "together" in chosen:
        fields["together"] = Together(tier=draw(tiers), required=draw(st.booleans()))
    if "at_most" in chosen:
        fields["at_most"] = AtMost(nodes=draw(st.integers(1, 2)), tier=draw(tiers))
    if "balanced" in chosen:
        domains = draw(st.sampled_from([None, 1, 2, 3]))
        fields["balanced"] = Balanced(tier=draw(tiers), domains=domains)
    if "segments" in chosen:
        fields["segments"] = Segments(ranks=draw(st.integers(1, 3)), tier=draw(tiers))
    if "pinned" in chosen:
        ranks = draw(st.sets(st.integers(0, pcg.world_size - 1), min_size=1, max_size=2))
        fields["pinned"] = tuple(Pin(rank=r, node=draw(st.sampled_from(names))) for r in ranks)
    elif "excluded" in chosen:
        fields["excluded_nodes"] = (draw(st.sampled_from(names)),)
    fields["whole_nodes"] = "whole" in chosen
    fields["spares"] = 1 if "spares" in chosen else 0
    return Constraints(**fields)


KINDS = [
    "together",
    "at_most",
    "balanced",
    "segments",
    "pinned",
    "excluded",
    "whole",
    "spares",
]


@given(clusters(rails=False), pcgs(5), st.data())
@settings(
    max_examples=examples(50),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_the_best_placement_that_satisfies_the_constraints_is_found(
    cluster: Cluster, pcg: PCG, data: st.DataObject
) -> None:
    if not cluster.nodes:
        return
    want = data.draw(wishes(pcg, cluster))
    count = Evaluator(pcg, cluster)
    tiers: list[str | None] = [None]
    if want.together:
        first = cluster.tier_names.index(want.together.tier)
        tiers = list(cluster.tier_names[first : first + 1 if want.together.required else None])
    every = list(every_placement(pcg, cluster, by_device=False))
    for tier in tiers:
        allowed = [devices for devices in every if not want.broken(cluster, devices, tier)]
        if allowed:
            break
    else:
        with pytest.raises(Infeasible):
            place(pcg, cluster, constraints=want)
        return
    best: list[float] | None = None
    for devices in allowed:
        cost = list(count(devices).traffic_bytes.values())[::-1]
        if best is None or less(cost, best):
            best = cost
    assert best is not None
    found = place(pcg, cluster, constraints=want)
    assert want.broken(cluster, found.devices, tier) == []
    assert list(found.traffic_bytes.values())[::-1] == pytest.approx(
        best, rel=1e-9, abs=1e-9 * sum(best)
    )
    assert found.lower_bound_bytes <= best[0] * (1 + 1e-9)
    assert found.proved_optimal
    assert len(found.spares) == want.spares


@given(clusters(rails=False), pcgs(5), st.data())
@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_what_an_explanation_offers_instead_can_be_placed(
    cluster: Cluster, pcg: PCG, data: st.DataObject
) -> None:
    if not cluster.nodes:
        return
    want = data.draw(wishes(pcg, cluster))
    found = explain_infeasible(pcg, cluster, want)
    if found is None:
        assert want.broken(cluster, place(pcg, cluster, constraints=want).devices, "spine") == []
        return
    with pytest.raises(Infeasible):
        place(pcg, cluster, constraints=want)
    assert found.unmet
    for _, weaker in found.relaxations:
        place(pcg, cluster, constraints=weaker)


@given(clusters(rails=True), pcgs(4), st.data())
@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_where_rails_matter_what_is_placed_satisfies_the_constraints(
    cluster: Cluster, pcg: PCG, data: st.DataObject
) -> None:
    if not cluster.nodes:
        return
    want = data.draw(wishes(pcg, cluster))
    try:
        found = place(pcg, cluster, constraints=want)
    except Infeasible:
        return
    assert_valid(found, pcg, cluster)
    together = want.together
    free = together is not None and not together.required
    assert want.broken(cluster, found.devices, "spine" if free else None) == []
    assert found.lower_bound_bytes <= found.cross_spine_bytes * (1 + 1e-9)
