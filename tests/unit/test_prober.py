"""What probing promises: bounds hold, busy nodes are left alone, failures are told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from railweave.agents.netprobe import Opening, PathMeasurement
from railweave.agents.probe_end import PairProbe, PathProbe, ProbeOrder
from railweave.agents.prober import Answers, Probed, ProbeSettings, probe
from railweave.agents.steady_rate import steady_bytes_per_s
from railweave.agents.trace import TracedPath, equal_cost_paths
from railweave.placement import InvalidInput
from railweave.placement.inference.measurements import Measurement, Pair, ProbeKind, ProbeRound

Orders = Mapping[Pair, tuple[Opening, ProbeOrder]]


class Network:
    """Ends that answer at once and move all they may; `dead` nodes expect no probe."""

    def __init__(self, dead: Iterable[str] = ()) -> None:
        self.dead = set(dead)
        self.probed: list[Pair] = []
        self.orders: list[ProbeOrder] = []

    def listen(self, orders: Mapping[Pair, ProbeOrder], timeout_s: float) -> Answers[Opening]:
        answers = Answers[Opening]()
        for pair in orders:
            if pair[1] in self.dead:
                answers.failures[pair] = f"{pair[1]} is gone"
            else:
                answers.found[pair] = Opening(host=pair[1], port=1, nonce="n")
        return answers

    def connect(self, orders: Orders, timeout_s: float) -> Answers[PairProbe]:
        answers = Answers[PairProbe]()
        for pair, (_, order) in orders.items():
            self.probed.append(pair)
            self.orders.append(order)
            answers.found[pair] = PairProbe(paths=(PathProbe(measured=measured(order)),))
        return answers


def measured(order: ProbeOrder) -> PathMeasurement:
    return PathMeasurement(
        round_trip_min_s=1e-5,
        round_trip_median_s=2e-5,
        spread_s=1e-6,
        pings=order.budget.pings,
        there_bytes_per_s=1e9 if order.budget.transfer_bytes else None,
        moved_bytes=order.most_bytes,
        took_s=0.1,
    )


class Rounds:
    """A planner of given rounds."""

    def __init__(self, *planned: tuple[ProbeKind, list[Pair]]) -> None:
        self.waiting = [ProbeRound(n, kind, tuple(ps)) for n, (kind, ps) in enumerate(planned)]
        self.heard: list[Measurement] = []

    def next_round(self) -> ProbeRound | None:
        return self.waiting.pop(0) if self.waiting else None

    def add(self, asked: ProbeRound, measurements: Iterable[Measurement], took_s: float) -> None:
        assert took_s >= 0
        self.heard += measurements


class Clock:
    """A clock that only pauses move."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def pause(self, time_s: float) -> None:
        self.now_s += time_s


LATENCY, BANDWIDTH = ProbeKind.LATENCY, ProbeKind.BANDWIDTH
TWO = [("a", "b"), ("c", "d")]


def run(network: Network, settings: ProbeSettings, *planned: Any, **more: Any) -> Probed:
    return probe(Rounds(*planned), network, settings, now_s=Clock(), **more)


@given(
    budget=st.integers(0, 10**6),
    transfer=st.integers(1, 10**5),
    rounds=st.lists(st.integers(1, 5), max_size=6),
)
def test_the_budget_of_bytes_is_never_exceeded(
    budget: int, transfer: int, rounds: list[int]
) -> None:
    settings = ProbeSettings(budget_bytes=budget, transfer_bytes=transfer)
    planned = [(BANDWIDTH, [(f"a{i}", f"b{i}") for i in range(count)]) for count in rounds]
    network = Network()
    probed = run(network, settings, *planned)
    assert probed.moved_bytes <= budget
    assert probed.moved_bytes == sum(each.moved_bytes for each in probed.measurements)
    if len(network.probed) < sum(rounds):
        assert budget - probed.moved_bytes < settings.order(BANDWIDTH).most_bytes


def test_probes_of_latency_move_nothing_and_need_no_budget() -> None:
    network = Network()
    probed = run(network, ProbeSettings(budget_bytes=0), (LATENCY, TWO), (BANDWIDTH, TWO))
    assert network.probed == TWO
    assert probed.moved_bytes == 0
    assert "may exceed the 0 bytes allowed" in probed.stopped


def test_rounds_wait_so_that_no_node_is_above_its_rate() -> None:
    clock = Clock()
    settings = ProbeSettings(rate_bytes_per_s=1e6, transfer_bytes=10**6)
    planner = Rounds((BANDWIDTH, TWO), (LATENCY, TWO), (BANDWIDTH, TWO))
    probe(planner, Network(), settings, now_s=clock, pause=clock.pause)
    moved = 2 * settings.order(BANDWIDTH).most_bytes
    assert clock.now_s == pytest.approx(moved / 1e6)


def test_bounds_on_rounds_and_time_end_a_probing_and_are_named() -> None:
    planned = [(LATENCY, TWO)] * 3
    by_count = run(Network(), ProbeSettings(rounds=2), *planned)
    assert (by_count.rounds, by_count.stopped) == (2, "the 2 rounds allowed are done")
    clock = Clock()
    settings = ProbeSettings(budget_s=1.5, rate_bytes_per_s=1e6, transfer_bytes=10**6)
    planner = Rounds(*[(BANDWIDTH, TWO)] * 3)
    by_time = probe(planner, Network(), settings, now_s=clock, pause=clock.pause)
    assert (by_time.rounds, by_time.stopped) == (1, "the 1.5 s allowed are over")


def test_nodes_that_run_jobs_are_left_alone_and_told_of_unless_allowed() -> None:
    network = Network()
    jobs = iter([{"a"}, {"d"}])
    settings = ProbeSettings()
    probed = run(network, settings, (LATENCY, TWO), (LATENCY, TWO), busy=lambda: next(jobs))
    assert network.probed == [("c", "d"), ("a", "b")]
    assert probed.left_alone == {"a", "d"}
    allowed = Network()
    probed = run(allowed, ProbeSettings(include_busy=True), (LATENCY, TWO), busy=lambda: {"a"})
    assert (allowed.probed, probed.left_alone) == (TWO, set())


def test_a_pair_that_fails_is_a_measurement_that_says_why() -> None:
    planner = Rounds((LATENCY, TWO))
    probe(planner, Network(dead=["d"]), ProbeSettings(), now_s=Clock())
    assert {each.pair: each.lost for each in planner.heard} == {
        ("a", "b"): None,
        ("c", "d"): "d is gone",
    }
    assert {(each.round, each.kind) for each in planner.heard} == {(0, LATENCY)}
    assert not any(each.unanswered for each in planner.heard)


def test_a_node_that_takes_no_part_is_told_from_a_network_that_carries_nothing() -> None:
    class Hung(Network):
        def listen(self, orders: Mapping[Pair, ProbeOrder], timeout_s: float) -> Answers[Opening]:
            answers = super().listen(orders, timeout_s)
            for pair in [pair for pair in answers.found if pair[1] == "b"]:
                del answers.found[pair]
                answers.fail(pair, "no answer within 10 s", unanswered=True)
            return answers

    probed = run(Hung(dead=["d"]), ProbeSettings(), (LATENCY, TWO))
    assert {m.pair: m.unanswered for m in probed.measurements} == {TWO[0]: True, TWO[1]: False}


def test_every_rail_is_probed_in_turn_and_named() -> None:
    network = Network()
    probed = run(network, ProbeSettings(rails=(0, 2)), (LATENCY, TWO[:1]))
    assert [order.rail for order in network.orders] == [0, 2]
    assert [each.rail for each in probed.measurements] == [0, 2]


def test_a_traced_round_measures_each_path_in_its_own_direction() -> None:
    settings = ProbeSettings(paths=8)
    assert settings.order(BANDWIDTH).trace_ports == 0
    order = settings.order(BANDWIDTH, traced=True)
    assert (order.trace_ports, order.each_path, order.budget.both_ways) == (8, True, False)
    network = Network()
    run(network, settings, (BANDWIDTH, TWO), traced=True)
    assert network.orders == [order, order]


def test_a_probing_that_goes_on_with_another_counts_its_costs() -> None:
    settings = ProbeSettings(transfer_bytes=1000, budget_bytes=10_000)
    first = run(Network(), settings, (BANDWIDTH, TWO))
    assert first.moved_bytes == 2 * settings.order(BANDWIDTH).most_bytes
    both = run(Network(), settings, *[(BANDWIDTH, TWO)] * 3, after=first)
    assert both is first
    assert (both.rounds, both.moved_bytes <= 10_000) == (2, True)
    assert "may exceed" in both.stopped


def test_round_trips_beside_bulk_data_do_not_count() -> None:
    probed = run(Network(), ProbeSettings(), (BANDWIDTH, TWO), (LATENCY, TWO))
    assert [each.round_trip_min_s for each in probed.measurements] == [None, None, 1e-5, 1e-5]


def test_paths_that_end_early_are_measurements_with_the_hops_they_have() -> None:
    good = TracedPath(source_port=1, hops=("leaf", "spine0"), reached=True)
    dead = [TracedPath(source_port=port, hops=("leaf", "spine1"), reached=False) for port in (2, 3)]

    class Traced(Network):
        def connect(self, orders: Orders, timeout_s: float) -> Answers[PairProbe]:
            answers = Answers[PairProbe]()
            for pair, (_, order) in orders.items():
                path = PathProbe(hops=good.hops, source_port=1, measured=measured(order))
                answers.found[pair] = PairProbe(paths=(path,), traced=(good, *dead))
            return answers

    probed = run(Traced(), ProbeSettings(paths=3), (BANDWIDTH, TWO[:1]), traced=True)
    assert [(each.hops, each.lost) for each in probed.measurements] == [
        (("leaf", "spine0"), None),
        (("leaf", "spine1"), "a path of this pair ends at spine1"),
    ]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"budget_bytes": -1}, "budget_bytes"),
        ({"rate_bytes_per_s": 0}, "rate_bytes_per_s"),
        ({"rails": ()}, "rails"),
        ({"budget": 3}, "budget"),
    ],
)
def test_settings_that_mean_nothing_are_refused_by_name(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        ProbeSettings(**wrong)


def test_equal_cost_paths_are_those_that_came_through() -> None:
    traced = [
        TracedPath(source_port=port, hops=hops, reached=hops != ("x",))
        for port, hops in ((9, ("a",)), (4, ("b",)), (2, ("a",)), (1, ("x",)))
    ]
    assert equal_cost_paths(traced) == {("a",): (2, 9), ("b",): (4,)}


def test_a_transfer_that_stalls_and_catches_up_has_the_rate_of_the_rest() -> None:
    steady = [(0.01 * k, 10_000 * k) for k in range(101)]
    assert steady_bytes_per_s(steady) == pytest.approx(1e6)
    stalled = [(t, moved) for t, moved in steady if not 0.28 < t < 0.4]
    assert steady_bytes_per_s(stalled) == pytest.approx(1e6)
    held_back = [(t, 280_000 if 0.28 <= t < 0.4 else moved) for t, moved in steady]
    assert steady_bytes_per_s(held_back) == pytest.approx(1e6, rel=0.02)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(1, 10**6)), min_size=1, max_size=60),
)
def test_any_transfer_has_a_rate_above_zero(steps: list[tuple[float, int]]) -> None:
    now, moved = 0.0, 0
    arrivals = []
    for gap_s, count in steps:
        now, moved = now + gap_s, moved + count
        arrivals.append((now, moved))
    assert 0 < steady_bytes_per_s(arrivals) < float("inf")
