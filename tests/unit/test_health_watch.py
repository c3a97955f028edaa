"""What the daemon learns from its own re-probes: kept over restarts, and not misled by jobs."""

from __future__ import annotations

import json

import pytest
from railweave.placement.inference.health import HealthRules
from railweave.placement.inference.measurements import Measurement
from railweave.placement.inference.reprobing import Rewatching, watch_rounds, watched_pairs
from railweave.scheduler.health_watch import Learned, Network, links_used
from railweave.scheduler.settings import Reprobe, Settings
from simulated_network import SimulatedNetwork

RULES = HealthRules(learn=6, history=16, window=6, worse=4)
NET = SimulatedNetwork.regular((3, 4), [3e-6, 5e-6], seed=1, missing=0.0)
NETWORK = Network(("leaf", "spine"), dict(NET.paths))
ROUNDS = watch_rounds(watched_pairs(NET.paths), NET.paths)


class Daemon:
    """What is learned, sweep by sweep of a minute each."""

    def __init__(self, **degraded: float) -> None:
        self.net = SimulatedNetwork.regular((3, 4), [3e-6, 5e-6], seed=1, missing=0.0)
        self.learned = Learned()
        self.now_s = 0.0

    def sweeps(self, count: int, used: set[tuple[int, str]] | None = None) -> set[str]:
        for _ in range(count):
            planner = Rewatching(ROUNDS, self.learned.at)
            while asked := planner.next_round():
                planner.add(asked, self.net.probe(asked), 0.1)
            self.learned.learn(NETWORK, planner.heard, used or set(), RULES, self.now_s)
            self.now_s += 60.0
        return {each.named for each in self.learned.found}


def test_a_slow_node_is_found_and_still_known_by_the_next_daemon() -> None:
    daemon = Daemon()
    assert daemon.sweeps(10) == set()
    daemon.net.degraded["n5"] = 0.4
    assert daemon.sweeps(8) == {"node n5"}
    since_s = daemon.learned.found[0].since_s
    kept = json.loads(json.dumps(daemon.learned.to_data()))
    daemon.learned = Learned.restored(kept, NETWORK, RULES)
    [found] = daemon.learned.found
    assert (found.subject, found.since_s) == ("n5", since_s)
    assert daemon.sweeps(1) == {"node n5"}
    del daemon.net.degraded["n5"]
    assert daemon.sweeps(8) == set()


def test_what_a_jobs_traffic_takes_of_links_is_not_held_against_them() -> None:
    daemon = Daemon()
    daemon.sweeps(10)
    leaf = daemon.net.paths["n0"][0]
    for a in daemon.net.names:
        for b in daemon.net.names:
            if a < b and (daemon.net.paths[a][0] == leaf) != (daemon.net.paths[b][0] == leaf):
                daemon.net.degraded[a, b] = 0.4
    assert daemon.sweeps(8, {(0, leaf)}) == set()
    assert daemon.sweeps(8) == {f"links out of leaf {leaf}"}


def test_links_count_as_used_where_a_job_leaves_its_domains() -> None:
    paths = {"a": ("l0", "p0"), "b": ("l0", "p0"), "c": ("l1", "p0"), "d": ("l2", "p1")}
    assert links_used([["a", "b"], ["d"], ["gone"]], paths) == set()
    assert links_used([["a", "c"]], paths) == {(0, "l0"), (0, "l1")}
    assert links_used([["a", "d"]], paths) == {(0, "l0"), (0, "l2"), (1, "p0"), (1, "p1")}


def test_each_rail_is_learned_apart() -> None:
    learned, pairs = Learned(), watched_pairs(NET.paths)
    for sweep in range(16):
        slow = 0.3 if sweep >= 8 else 1.0
        measured = [
            Measurement(
                a=a,
                b=b,
                rail=rail,
                round=number,
                there_bytes_per_s=25e9 * (slow if rail == 1 and "n0" in (a, b) else 1.0),
            )
            for number, (a, b) in enumerate(pairs)
            for rail in (0, 1)
        ]
        learned.learn(NETWORK, measured, set(), RULES, 60.0 * sweep)
    assert [each.named for each in learned.found] == ["node n0 rail 1"]


def test_nodes_that_come_do_not_make_what_was_learned_forgotten() -> None:
    daemon = Daemon()
    daemon.sweeps(10)
    daemon.net.degraded["n5"] = 0.4
    daemon.sweeps(8)
    more = Network(NETWORK.tiers, {**NETWORK.paths, "new": ("another",)})
    daemon.learned.move(more, RULES)
    daemon.learned.learn(more, [], set(), RULES, daemon.now_s)
    assert [each.named for each in daemon.learned.found] == ["node n5"]


def test_settings_travel_as_json_and_zero_never_measures() -> None:
    settings = Settings(state_dir="/s", reprobe=Reprobe(every_s=0, rules=RULES))
    again = Settings.model_validate_json(settings.model_dump_json())
    assert again == settings and again.reprobe.rules.learn == 6
    assert Settings(state_dir="/s").reprobe.probes.budget_s
    with pytest.raises(ValueError, match="every_s"):
        Settings(state_dir="/s", reprobe={"every_s": -1})
