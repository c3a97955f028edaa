"""Inference: exact domains from noisy probes in few rounds, and open about what it cannot tell."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from railweave.placement import InvalidInput
from railweave.placement.inference import (
    Inference,
    Measurement,
    ProbeBudget,
    ProbeKind,
    Probing,
    infer,
)
from simulated_network import SimulatedNetwork


def probed(
    net: SimulatedNetwork,
    nodes: Sequence[str] | None = None,
    budget: ProbeBudget | None = None,
    excluded: Sequence[str] = (),
) -> tuple[Probing, list[Measurement]]:
    probing = Probing(nodes or net.names, budget, excluded)
    found: list[Measurement] = []
    while (asked := probing.next_round()) is not None:
        measured = net.probe(asked)
        found += measured
        probing.add(asked, measured, 1.0)
    return probing, found


def domains(found: Inference, tier: int) -> set[frozenset[str]]:
    name = found.tiers[tier]
    return {frozenset(each.nodes) for each in found.domains if each.tier == name}


def assert_exact(net: SimulatedNetwork, found: Inference) -> None:
    assert len(found.tiers) == len(net.latencies_s)
    for tier in range(len(found.tiers) - 1):
        assert domains(found, tier) == net.domains(tier)


LARGE = {
    "8 pods of 16 leaves of 16": ((8, 16, 16), {}),
    "16 pods of 16 leaves of 8": ((16, 16, 8), {}),
    "125 leaves of 16, no pods": ((125, 16), {"latencies_s": [3e-6, 5e-6]}),
    "4 tiers": ((5, 5, 8, 10), {"latencies_s": [2e-6, 3e-6, 4.5e-6, 7e-6]}),
    "10 large domains, names in random order": (
        (10, 200),
        {"latencies_s": [3e-6, 5e-6], "shuffled": True},
    ),
}


@pytest.mark.parametrize("shape", LARGE)
def test_2000_nodes_are_exact_in_40_rounds_with_noise_and_missing_probes(shape: str) -> None:
    fanouts, others = LARGE[shape]
    net = SimulatedNetwork.regular(fanouts, **{"shuffled": False, "seed": 11, **others})
    probing, found = probed(net)
    assert probing.rounds <= 40
    inferred = infer(net.names, found)
    assert_exact(net, inferred)
    assert all(each.confidence is not None for each in inferred.domains)
    assert net.probes < 12 * len(net.names) * len(net.names).bit_length()


def test_domains_of_very_unequal_sizes_are_exact() -> None:
    chance = random.Random(5)
    sizes = [chance.randint(1, 40) for _ in range(60)]
    paths = [(str(i), str(i // 12)) for i, size in enumerate(sizes) for _ in range(size)]
    net = SimulatedNetwork.of(paths, shuffled=False, seed=3)
    assert_exact(net, infer(net.names, probed(net)[1]))


def test_names_that_tell_nothing_cost_rounds_but_not_exactness() -> None:
    net = SimulatedNetwork.regular((4, 5, 12), seed=2)
    probing, found = probed(net)
    assert probing.rounds <= 40
    assert_exact(net, infer(net.names, found))


RANDOM = {
    "8 pods of 8 leaves of 16": ((8, 8, 16), None, 40),
    "16 leaves of 128": ((16, 128), [3e-6, 5e-6], 40),
    "8 pods of 8 leaves of 32": ((8, 8, 32), None, 50),
    "8 pods of 16 leaves of 16": ((8, 16, 16), None, 60),
}
"""Shapes, latencies, and rounds in which each seed should end; what can be found by trying is few
bits a probe, and no planner could divide the last one in much less than 45."""


def test_a_thousand_names_that_tell_nothing_are_exact_in_40_rounds() -> None:
    net = SimulatedNetwork.regular((8, 8, 16), seed=1)
    probing, found = probed(net)
    assert probing.rounds <= 40
    assert_exact(net, infer(net.names, found))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize("shape", RANDOM)
def test_names_that_tell_nothing_are_exact_in_the_rounds_that_trying_takes(
    shape: str, seed: int
) -> None:
    fanouts, latencies_s, rounds = RANDOM[shape]
    net = SimulatedNetwork.regular(fanouts, latencies_s, seed=seed)
    probing, found = probed(net, budget=ProbeBudget(rounds=rounds))
    assert probing.rounds <= rounds
    assert_exact(net, infer(net.names, found))


def test_freaks_of_timing_a_slow_node_and_a_dead_one_leave_the_others_exact() -> None:
    slow, dead = "n70", "n5"
    net = SimulatedNetwork.regular(
        (6, 6, 12),
        shuffled=False,
        outliers=0.03,
        slow={slow: 60e-6},
        dead=frozenset({dead}),
        seed=4,
    )
    probing, found = probed(net)
    inferred = infer(net.names, found)
    alone = {slow, dead}
    for tier in range(2):
        here = {group - alone for group in domains(inferred, tier)} - {frozenset()}
        assert here == {group - alone for group in net.domains(tier)}
    assert inferred.unknown[dead] == "no probe of it succeeded"
    assert inferred.slow_s[slow] == pytest.approx(60e-6, rel=0.4)
    assert probing.remaining().unreached == (dead,)


def test_a_flat_network_has_one_tier() -> None:
    net = SimulatedNetwork.of([()] * 300, [3e-6])
    probing, found = probed(net)
    inferred = infer(net.names, found)
    assert inferred.tiers == ("spine",)
    assert inferred.domains == () and inferred.unknown == {}
    assert probing.rounds <= 15


def test_domains_that_only_bandwidth_tells_apart_are_found() -> None:
    net = SimulatedNetwork.regular((8, 40), [3e-6, 3e-6], rates_bytes_per_s=[25e9, 12e9], seed=5)
    assert_exact(net, infer(net.names, probed(net)[1]))


def test_tier_numbers_are_within_10_percent() -> None:
    net = SimulatedNetwork.regular(
        (4, 6, 12),
        shuffled=False,
        rates_bytes_per_s=[25e9, 20e9, 16e9],
        oversubscription=[1.0, 2.0, 4.0],
        seed=6,
    )
    inferred = infer(net.names, probed(net)[1])
    assert_exact(net, inferred)
    for found, rate, latency in zip(
        inferred.numbers, net.rates_bytes_per_s, net.latencies_s, strict=True
    ):
        assert found.bytes_per_s == pytest.approx(rate, rel=0.1)
        assert found.latency_s == pytest.approx(latency, rel=0.1)
    assert inferred.numbers[0].oversubscription is None
    assert inferred.numbers[1].oversubscription == pytest.approx(2.0, rel=0.1)
    assert inferred.numbers[2].oversubscription == pytest.approx(4.0, rel=0.1)


@pytest.mark.parametrize(("fanouts", "noise"), [((2, 4), 0.03), ((3, 5), 0.03), ((8, 8), 0.05)])
def test_small_networks_are_exact(fanouts: tuple[int, ...], noise: float) -> None:
    net = SimulatedNetwork.regular(fanouts, [3e-6, 5e-6], noise=noise, missing=0.0, seed=7)
    assert_exact(net, infer(net.names, probed(net)[1]))


def test_tiers_a_hundred_times_apart_are_found() -> None:
    net = SimulatedNetwork.regular((8, 8), [7e-6, 1e-3], noise=0.01, missing=0.0, seed=10)
    assert_exact(net, infer(net.names, probed(net)[1]))


@pytest.mark.soak
def test_a_16000_node_network_takes_less_than_a_minute_of_computing() -> None:
    net = SimulatedNetwork.regular((25, 40, 16), shuffled=False, seed=8)
    began, simulated = time.process_time(), 0.0
    probing = Probing(net.names)
    found: list[Measurement] = []
    while (asked := probing.next_round()) is not None:
        before = time.process_time()
        measured = net.probe(asked)
        simulated += time.process_time() - before
        found += measured
        probing.add(asked, measured)
    inferred = infer(net.names, found)
    took_s = time.process_time() - began - simulated
    assert_exact(net, inferred)
    assert took_s < 60


@settings(deadline=None, max_examples=8)
@given(
    st.integers(0, 60),
    st.integers(1, 8),
    st.sets(st.integers(0, 59)),
    st.sets(st.integers(0, 59), max_size=5),
    st.integers(0, 5),
)
def test_rounds_are_disjoint_and_end_for_any_nodes_left_out_or_dead(
    count: int, size: int, left_out: set[int], dead: set[int], seed: int
) -> None:
    net = SimulatedNetwork.of(
        [(str(i // size),) for i in range(count)] or [("0",)],
        dead=frozenset(f"n{i}" for i in dead),
        seed=seed,
    )
    excluded = [f"n{i}" for i in left_out]
    probing, found = probed(net, excluded=excluded, budget=ProbeBudget(rounds=25))
    ends = {end for each in found for end in each.pair}
    assert not ends & set(excluded)
    assert probing.rounds <= 25
    left = probing.remaining()
    assert set(left.left_out) == set(excluded) & set(net.names)
    assert left.ended
    infer(net.names, found)


def test_a_budget_ends_probing_and_what_is_not_known_is_said() -> None:
    net = SimulatedNetwork.regular((6, 6, 12), seed=2)
    probing, found = probed(net, budget=ProbeBudget(probes=500))
    assert len(found) == 500
    left = probing.remaining()
    assert left.ended == "the budget of 500 probes"
    assert len(left.doubtful) > 200 and len(left.unmeasured) > 200
    net = SimulatedNetwork.regular((2, 4), [3e-6, 5e-6], noise=0.02)
    probing, _ = probed(net, budget=ProbeBudget(seconds=5))
    assert probing.rounds == 5 and probing.remaining().ended == "the budget of 5 seconds"
    probing, found = probed(net, budget=ProbeBudget(moved_bytes=2**27))
    assert probing.remaining().ended.endswith("bytes")
    probing, found = probed(net, budget=ProbeBudget(at_once=1))
    bulk = [each.round for each in found if each.kind is not ProbeKind.LATENCY]
    assert len(bulk) == len(set(bulk))


def test_a_node_whose_label_is_wrong_is_found_and_the_setting_decides() -> None:
    net = SimulatedNetwork.regular((4, 8), [3e-6, 5e-6], shuffled=False, noise=0.05, seed=9)
    labels = {node: {"rack": f"r{path[0]}"} for node, path in net.paths.items()}
    labels["n3"], labels["n9"] = {"rack": "r2"}, {}
    found = probed(net)[1]
    trusting = infer(net.names, found, labels, "labels", ("rack",))
    (differs,) = trusting.contradictions
    assert (differs.node, differs.labelled, differs.measured) == ("n3", "r2", "r0")
    assert differs.confidence > 0.99 and differs.won == "labels"
    assert trusting.paths["n3"] == ("r2",)
    assert trusting.paths["n9"] == ("r1",)
    measuring = infer(net.names, found, labels, "measurements", ("rack",))
    assert measuring.paths["n3"] == ("r0",) and measuring.tiers == ("rack", "spine")
    assert "measured with the nodes of 'r0'" in str(measuring.contradictions[0])
    assert infer(net.names, [], labels, "measurements", ("rack",)).paths["n3"] == ("r2",)


def test_pairs_that_contradict_a_domain_are_named_and_lower_its_confidence() -> None:
    net = SimulatedNetwork.regular((2, 8), [3e-6, 6e-6], shuffled=False, noise=0.02, missing=0.0)
    found = probed(net)[1]
    clear = infer(net.names, found)
    assert all(each.confidence and each.confidence > 0.99 for each in clear.domains)
    assert all(not each.contradicting for each in clear.domains)
    odd = [
        each.model_copy(update={"round_trip_min_s": 12e-6}) if each.pair == ("n0", "n1") else each
        for each in found
    ]
    assert {each.contradicting for each in infer(net.names, odd).domains} == {
        (("n0", "n1"),),
        (),
    }


def test_what_means_nothing_is_refused() -> None:
    with pytest.raises(InvalidInput, match="given twice"):
        Probing(["a", "b", "a"])
    with pytest.raises(InvalidInput, match="name it in tier_order"):
        infer(["a"], [], {"a": {"rack": "r"}})
    with pytest.raises(InvalidInput, match="use labels or measurements"):
        infer(["a"], [], prefer="both")  # type: ignore[arg-type]
    probing = Probing(["a", "b"])
    asked = probing.next_round()
    assert asked is not None
    probing.add(asked, [])
    with pytest.raises(InvalidInput, match="gave last, once"):
        probing.add(asked, [])
