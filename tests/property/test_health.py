"""Health: noise changes nothing; faults are found, blamed on the right part, and forgotten."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from railweave.placement import PCG, Cluster, InvalidInput
from railweave.placement.domains import Domain
from railweave.placement.inference import Measurement, ProbeKind, ProbeRound
from railweave.placement.inference.health import Between, Finding, Health, HealthRules, Symptom
from railweave.placement.inference.health_book import HealthBook
from railweave.placement.inference.health_effects import degraded_ctg, effects_of, link_health
from railweave.placement.inference.path_health import ARRIVAL, PathHealth, Series, arrival_of
from railweave.placement.timed.link_time import communication_time
from simulated_network import SimulatedNetwork

TIERS = ("leaf", "spine")


def network(seed: int = 0, **others: object) -> SimulatedNetwork:
    return SimulatedNetwork.regular((4, 4), [3e-6, 5e-6], False, seed, **others)


class Watch:
    """A network that is re-probed every minute, each node with two or three others in turn."""

    def __init__(self, net: SimulatedNetwork) -> None:
        self.net, self.now_s, self.number = net, 0.0, 0
        self.book = HealthBook(TIERS, net.paths)

    def pass_minutes(self, count: int) -> list[set[str]]:
        """What was found after every tenth of so many minutes, in words."""
        names, found = self.net.names, []
        for minute in range(count):
            step = 1 + 4 * (self.number % 3) if self.number % 4 else 1
            taken: set[str] = set()
            pairs = []
            for i in range(self.number // 4, self.number // 4 + len(names)):
                name, other = names[i % len(names)], names[(i + step) % len(names)]
                if not taken & {name, other}:
                    taken |= {name, other}
                    pairs.append((name, other))
            for kind in (ProbeKind.LATENCY, ProbeKind.BANDWIDTH):
                asked = ProbeRound(self.number, kind, tuple(pairs))
                self.book.observe(self.net.probe(asked), self.now_s)
            self.number += 1
            self.now_s += 60.0
            if (minute + 1) % 10 == 0:
                found.append({each.named for each in self.book.findings(self.now_s)})
        return found


@pytest.mark.parametrize("seed", range(2))
def test_noise_of_10_percent_and_lost_probes_change_nothing(seed: int) -> None:
    watch = Watch(network(seed))
    found = watch.pass_minutes(700)
    assert watch.net.probes >= 10_000
    assert set().union(*found) == set()


@settings(deadline=None, max_examples=3)
@given(st.integers(0, 2**32))
def test_one_path_of_10_percent_noise_is_never_bad_in_10_000_samples(seed: int) -> None:
    chance = random.Random(seed)
    series = Series(HealthRules())
    for number in range(10_000):
        series.add(chance.gauss(1.0, 0.1), float(number), 1.0)
        assert not series.bad


def test_a_node_that_loses_bandwidth_is_named_with_the_time_and_the_part_left() -> None:
    watch = Watch(network(1, missing=0.0))
    watch.pass_minutes(300)
    watch.net.degraded["n5"] = 0.4
    began = watch.now_s
    watch.pass_minutes(180)
    (finding,) = watch.book.findings(watch.now_s)
    assert (finding.subject, finding.health) == ("n5", Health.DEGRADED)
    assert finding.symptom is Symptom.BANDWIDTH
    assert began <= finding.since_s <= began + 60 * 60
    assert finding.factor == pytest.approx(0.4, rel=0.15)
    del watch.net.degraded["n5"]
    assert watch.pass_minutes(180)[-1] == set()


def test_one_slow_path_is_not_blamed_on_its_nodes() -> None:
    watch = Watch(network(2, missing=0.0))
    watch.pass_minutes(300)
    low, high = sorted(("n0", "n1"))
    watch.net.degraded[low, high] = 0.3
    watch.pass_minutes(180)
    assert {each.subject for each in watch.book.findings(watch.now_s)} == {(low, high)}


def test_a_dead_node_is_down_and_back_when_it_answers_again() -> None:
    watch = Watch(network(3, missing=0.0))
    watch.pass_minutes(100)
    watch.net.dead = frozenset({"n9"})
    watch.pass_minutes(80)
    (finding,) = watch.book.findings(watch.now_s)
    assert (finding.subject, finding.health, finding.factor) == ("n9", Health.DOWN, 0.0)
    watch.net.dead = frozenset()
    assert watch.pass_minutes(100)[-1] == set()


def test_a_node_that_goes_and_comes_is_flapping_until_it_stays() -> None:
    watch = Watch(network(4, missing=0.0))
    book = HealthBook(TIERS, watch.net.paths, HealthRules(flap_window_s=8 * 3600))
    watch.book = book
    for _ in range(4):
        watch.net.dead = frozenset({"n2"})
        watch.pass_minutes(80)
        watch.net.dead = frozenset()
        watch.pass_minutes(80)
    (finding,) = book.findings(watch.now_s)
    assert (finding.subject, finding.health) == ("n2", Health.FLAPPING)
    assert watch.pass_minutes(500)[-1] == set()


def test_links_out_of_a_domain_are_blamed_when_its_nodes_are_slow_to_all_others() -> None:
    watch = Watch(network(5, missing=0.0))
    watch.pass_minutes(300)
    inside = {name for name, path in watch.net.paths.items() if path[0] == "1"}
    for a in watch.net.names:
        for b in watch.net.names:
            if a < b and (a in inside) != (b in inside):
                watch.net.degraded[a, b] = 0.5
    watch.pass_minutes(200)
    found = watch.book.findings(watch.now_s)
    assert {each.subject for each in found} == {Domain("leaf", "1")}


def test_a_node_that_was_always_slower_than_its_peers_is_found() -> None:
    watch = Watch(network(6, degraded={"n7": 0.5}))
    found = watch.pass_minutes(200)
    assert found[-1] == {"node n7"}
    assert all(each <= {"node n7"} for each in found)


def test_what_slows_all_paths_at_once_is_nobodys_fault() -> None:
    watch = Watch(network(7))
    watch.pass_minutes(300)
    watch.net.rates_bytes_per_s = [rate * 0.5 for rate in watch.net.rates_bytes_per_s]
    assert set().union(*watch.pass_minutes(300)) == set()


def cluster() -> Cluster:
    return Cluster.parse(
        {
            "format": "railweave.cluster/1",
            "name": "c",
            "tiers": [
                {"name": "leaf", "bandwidth": 25e9, "latency": 3e-6},
                {"name": "spine", "bandwidth": 25e9, "latency": 5e-6},
            ],
            "rails": 2,
            "nodes": [
                {
                    "name": f"n{i}",
                    "accelerator": "H100-SXM",
                    "devices": 2,
                    "domains": {"leaf": f"{i // 2}"},
                }
                for i in range(4)
            ],
        }
    )


def finding(subject: object, health: Health, factor: float) -> Finding:
    return Finding(subject, health, Symptom.BANDWIDTH, 0.0, factor)  # type: ignore[arg-type]


def test_nodes_that_are_down_or_very_slow_are_left_out_and_others_shunned() -> None:
    found = [
        finding("n0", Health.DOWN, 0.0),
        finding("n1", Health.DEGRADED, 0.3),
        finding("n2", Health.DEGRADED, 0.8),
        finding(("n2", "n3"), Health.DOWN, 0.0),
    ]
    effects = effects_of(cluster(), found)
    assert (set(effects.out), set(effects.shunned)) == ({"n0", "n1"}, {"n2"})
    assert effects.out["n1"].factor == 0.3
    assert not effects_of(cluster(), found[3:])


def test_no_more_nodes_are_left_out_than_may_be_and_the_worst_first() -> None:
    found = [finding(f"n{i}", Health.DEGRADED, 0.1 + 0.1 * i) for i in range(3)]
    found.append(finding("n3", Health.FLAPPING, 0.9))
    effects = effects_of(cluster(), found, most_out=2)
    assert set(effects.out) == {"n3", "n0"}
    assert set(effects.shunned) == {"n1", "n2"}


def test_the_nodes_of_a_domain_with_bad_links_outwards_do_among_themselves() -> None:
    slow = effects_of(cluster(), [finding(Domain("leaf", "1"), Health.DEGRADED, 0.3)])
    assert (set(slow.out), set(slow.shunned), slow.cut) == (set(), {"n2", "n3"}, {})
    cut = effects_of(cluster(), [finding(Domain("leaf", "1"), Health.DOWN, 0.0)])
    assert set(cut.shunned) == {"n2", "n3"}
    assert cut.crossed(["n1", "n2"]) == Domain("leaf", "1")
    assert cut.crossed(["n2", "n3"]) is cut.crossed(["n0", "n1"]) is None


def test_the_graph_has_the_health_of_a_nodes_and_a_domains_links() -> None:
    found = [finding("n0", Health.DEGRADED, 0.6), finding(Domain("leaf", "1"), Health.DOWN, 0.0)]
    health = link_health(cluster(), found)
    assert sorted(health.values()) == [0.0, 0.0, 0.6, 0.6]
    graph = degraded_ctg(cluster(), found)
    weak = {frozenset(edge[:2]) for edge in graph.edges(data=True) if edge[2]["health"] < 1}
    assert weak == {frozenset(link) for link in health}
    assert all("nic:n0" in a + b or ":1/" in a + b for a, b in health)


def test_a_finding_of_one_rail_weakens_the_links_of_that_rail_alone() -> None:
    found = Finding("n0", Health.DEGRADED, Symptom.BANDWIDTH, 0.0, 0.6, rail=1)
    [(link, health)] = link_health(cluster(), [found]).items()
    assert "nic:n0/1" in link and health == 0.6
    assert found.named == "node n0 rail 1"


def test_steps_over_degraded_links_are_predicted_to_take_as_much_longer() -> None:
    pcg = PCG.parse(
        {
            "format": "railweave.pcg/1",
            "world_size": 2,
            "groups": [{"name": "g", "op": "all_gather", "ranks": [0, 1], "bytes": 50e9}],
        }
    )
    bad = [finding("n0", Health.DEGRADED, 0.5), finding(Domain("leaf", "1"), Health.DOWN, 0.0)]
    health = link_health(cluster(), bad)

    def transfer_s(*devices: str) -> float:
        placed = [(name, 0) for name in devices]
        return communication_time(pcg, cluster(), placed, health).phases[0].transfer_s

    assert transfer_s("n1", "n0") == pytest.approx(2.0)
    assert transfer_s("n2", "n3") == pytest.approx(1.0)
    assert transfer_s("n1", "n2") > 1e6


def test_a_path_that_begins_to_lose_segments_is_degraded_by_its_loss() -> None:
    path = PathHealth(HealthRules())
    chance = random.Random(1)
    for number in range(400):
        path.series[ARRIVAL].add(arrival_of(max(0.0, chance.gauss(0.001, 0.001))), number, 1.0)
        assert path.state(number)[0] is Health.WELL
    for number in range(400, 408):
        path.series[ARRIVAL].add(arrival_of(0.03), number, 1.0)
    health, symptom, since_s, factor = path.state(408)
    assert (health, symptom, since_s) == (Health.DEGRADED, Symptom.LOSS, 400)
    assert factor == pytest.approx(0.97)
    assert str(Finding("n0", health, symptom, since_s, factor)) == "node n0: 3.0% lost since 400 s"


def test_where_no_probe_ever_came_through_nothing_is_down() -> None:
    path = PathHealth(HealthRules())
    for number in range(20):
        path.add_outcome(number, lost=True)
    assert path.state(20)[0] is Health.WELL
    path.add_outcome(20, lost=False)
    for number in range(21, 25):
        path.add_outcome(number, lost=True)
    assert path.state(25)[0] is Health.DOWN


def test_probes_that_a_node_did_not_take_part_in_say_nothing_of_the_network() -> None:
    watch = Watch(network(8, missing=0.0))
    watch.pass_minutes(100)
    for number in range(20):
        absent = [
            Measurement(a="n0", b=other, lost="no answer", unanswered=True)
            for other in watch.net.names[1:]
        ]
        watch.book.observe(absent, watch.now_s + number)
    assert watch.book.findings(watch.now_s + 20) == ()


def test_a_book_goes_on_from_what_was_kept_as_if_it_had_never_stopped() -> None:
    watch, other = Watch(network(9)), Watch(network(9))
    for each in (watch, other):
        each.pass_minutes(300)
        each.net.degraded["n5"] = 0.4
        each.pass_minutes(40)
    kept = json.loads(json.dumps(watch.book.to_data()))
    watch.book = HealthBook.restored(TIERS, watch.net.paths, kept)
    for _ in range(12):
        # Samples are kept to five digits.
        for one, two in zip(
            *(each.book.findings(each.now_s) for each in (watch, other)), strict=True
        ):
            assert (one.subject, one.health, one.since_s) == (two.subject, two.health, two.since_s)
            assert one.factor == pytest.approx(two.factor, rel=1e-3)
        assert watch.pass_minutes(10) == other.pass_minutes(10)
    assert watch.book.findings(watch.now_s)


def test_a_book_forgets_nodes_that_are_gone_and_keeps_the_others_where_domains_change() -> None:
    watch = Watch(network(10, missing=0.0))
    watch.pass_minutes(300)
    watch.net.degraded["n5"] = 0.4
    watch.pass_minutes(180)
    fewer = {name: ("all",) for name in watch.net.paths if name != "n0"}
    book = HealthBook.restored(("rack", "spine"), fewer, watch.book.to_data())
    [found] = book.findings(watch.now_s)
    assert found.subject == "n5"


@pytest.mark.parametrize("wrong", [{}, {"format": "railweave.health/1"}, {"format": 3}])
def test_a_kept_book_of_another_form_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match="learned anew"):
        HealthBook.restored(TIERS, network().paths, wrong)


def test_rules_that_could_never_change_back_are_refused() -> None:
    with pytest.raises(InvalidInput, match="better < worse"):
        HealthRules(worse=3, better=3)
    with pytest.raises(InvalidInput, match="history"):
        HealthRules(learn=20, history=10)


def test_links_between_domains_of_which_none_is_to_blame_are_weak_on_both_sides() -> None:
    found = [finding(Between("spine", "spine"), Health.DEGRADED, 0.4)]
    health = link_health(cluster(), found)
    assert len(health) == 4  # two leaves, two rails
    assert set(health.values()) == {0.4}
    assert not effects_of(cluster(), found)
    assert found[0].named == "links between the domains of spine"
