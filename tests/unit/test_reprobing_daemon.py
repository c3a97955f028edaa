"""The daemon's own measuring: on time, beside jobs, kept in its store, told once; the network is
simulated at the ends of probes, everything else is real."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from railweave.agents.netprobe import Opening, PathMeasurement
from railweave.agents.probe_end import PairProbe, PathProbe, ProbeOrder
from railweave.agents.prober import Answers
from railweave.placement import Cluster
from railweave.placement.inference import ProbeKind, ProbeRound
from railweave.placement.inference.measurements import Pair
from railweave.scheduler.core import Core
from railweave.scheduler.health_watch import HealthWatch
from railweave.scheduler.records import Holding
from railweave.scheduler.settings import Settings
from railweave.scheduler.store import Store
from railweave.scheduler.topology import Topology
from simulated_network import SimulatedNetwork

SETTINGS = {
    "every_s": 60.0,
    "probes": {"transfer_bytes": 2**20, "transfer_s": 0.1, "pings": 5},
    "rules": {"learn": 6, "history": 16, "window": 6, "worse": 4},
}
SWEEPS = 8


class Ends:
    """Ends of probes on a simulated network."""

    def __init__(self, net: SimulatedNetwork) -> None:
        self._net = net

    def listen(self, orders: Mapping[Pair, ProbeOrder], timeout_s: float) -> Answers[Opening]:
        return Answers({pair: Opening(host="h", port=1, nonce="n") for pair in orders})

    def connect(
        self, orders: Mapping[Pair, tuple[Opening, ProbeOrder]], timeout_s: float
    ) -> Answers[PairProbe]:
        answers = Answers[PairProbe]()
        bulk = any(order.budget.transfer_bytes for _, order in orders.values())
        kind = ProbeKind.BANDWIDTH if bulk else ProbeKind.LATENCY
        for found in self._net.probe(ProbeRound(0, kind, tuple(orders))):
            measured = PathMeasurement(
                round_trip_min_s=found.round_trip_min_s or 1.0,
                round_trip_median_s=found.round_trip_min_s or 1.0,
                spread_s=0.0,
                pings=1,
                there_bytes_per_s=found.there_bytes_per_s,
                back_bytes_per_s=found.back_bytes_per_s,
                moved_bytes=found.moved_bytes,
                took_s=0.1,
            )
            pair = PairProbe(paths=(PathProbe(measured=measured),))
            answers.found[found.a, found.b] = pair
        return answers


class Watched:
    """A daemon's watch over a network of three leaves of two nodes, over restarts."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.net = SimulatedNetwork.regular((3, 2), [3e-6, 5e-6], False, 5, missing=0.0)
        self.cluster = Cluster.parse(
            {
                "format": "railweave.cluster/1",
                "name": "c",
                "tiers": [
                    {"name": "leaf", "bandwidth": 25e9, "latency": 3e-6},
                    {"name": "spine", "bandwidth": 25e9, "latency": 5e-6},
                ],
                "nodes": [
                    {"name": n, "accelerator": "cpu", "devices": 1, "domains": {"leaf": path[0]}}
                    for n, path in self.net.paths.items()
                ],
            }
        )
        self.settings = Settings(state_dir=str(folder), reprobe=SETTINGS)
        self.now_s = 1000.0
        self.held: dict[tuple[str, int], Holding] = {}
        monkeypatch.setattr(Core, "now_s", staticmethod(lambda: self.now_s))
        monkeypatch.setattr("railweave.scheduler.health_watch.FleetEnds", lambda _: Ends(self.net))
        self.begin()

    def begin(self) -> None:
        """A daemon starts, the first or the next."""
        self.store = Store.open(self.settings.store_location)
        self.store.take_epoch(self.now_s, "test")
        self.store.held = lambda: self.held  # type: ignore[method-assign]
        self.core = Core(self.settings, self.store)
        self.topology = Topology(self.core)
        self.topology.cluster = self.cluster
        agents = dict.fromkeys(self.net.names)
        self.watch = HealthWatch(self.core, self.topology, lambda: agents)  # type: ignore[arg-type,return-value]

    def sweeps(self, count: int) -> int:
        """Let so many periods pass; how many probes that made."""
        before = self.net.probes
        for _ in range(count):
            self.now_s += 60.0
            self.watch._due = 0.0
            asyncio.run(self.watch.tend())
        return self.net.probes - before

    def found(self) -> list[str]:
        return [each.named for each in self.watch.findings]

    def told(self) -> list[tuple[str, str]]:
        return [
            (event.kind, event.message.split(" since ")[0])
            for event in self.store.events()
            if event.kind.startswith("network_")
        ]


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(tmp_path, monkeypatch)


def test_a_fault_is_found_kept_over_a_restart_and_its_end_is_told(watched: Watched) -> None:
    watched.sweeps(SWEEPS)
    assert (watched.found(), watched.told()) == ([], [])
    watched.net.degraded["n3"] = 0.3
    watched.sweeps(SWEEPS)
    assert watched.found() == ["node n3"]
    effects = watched.watch.effects(watched.cluster)
    assert set(effects.out) == {"n3"} and effects.link_health
    [(kind, message)] = watched.told()
    assert kind == "network_bad" and message.startswith("node n3: bandwidth at ")
    since_s = watched.watch.findings[0].since_s
    watched.store.close()
    watched.begin()
    assert watched.found() == ["node n3"]
    assert watched.watch.findings[0].since_s == since_s
    watched.sweeps(2)
    assert len(watched.told()) == 1
    watched.net.degraded.clear()
    watched.sweeps(SWEEPS)
    assert watched.found() == []
    assert [kind for kind, _ in watched.told()] == ["network_bad", "network_well"]


def test_nothing_is_measured_before_its_time_and_the_period_goes_on_over_a_restart(
    watched: Watched,
) -> None:
    asyncio.run(watched.watch.tend())
    assert watched.net.probes == 0  # the first period has not passed
    assert watched.sweeps(1) == 30  # 15 pairs, latency and bandwidth
    asyncio.run(watched.watch.tend())
    assert watched.net.probes == 30
    watched.now_s += 70.0
    watched.store.close()
    watched.begin()
    asyncio.run(watched.watch.tend())
    assert watched.net.probes == 60


def test_nodes_that_run_jobs_are_left_alone(watched: Watched) -> None:
    watched.held = {("n0", 0): Holding("job", 1, 0), ("n1", 0): Holding("job", 1, 1)}
    assert watched.sweeps(1) == 12  # the six pairs of the other four


def test_nodes_that_join_during_the_first_sweep_are_watched_from_the_next_on(
    watched: Watched,
) -> None:
    whole, listen = watched.cluster, Ends.listen

    def joined(self: Ends, orders: Mapping[Pair, ProbeOrder], timeout_s: float) -> Answers[Opening]:
        watched.topology.cluster = whole
        assert watched.watch.findings == ()
        return listen(self, orders, timeout_s)

    watched.topology.cluster = whole.with_nodes(whole.nodes[:2])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ends, "listen", joined)
        assert watched.sweeps(1) == 2
    watched.sweeps(SWEEPS)
    watched.net.degraded["n3"] = 0.3
    watched.sweeps(SWEEPS)
    assert watched.found() == ["node n3"]


def test_a_measuring_that_was_asked_for_goes_first(watched: Watched) -> None:
    async def both() -> bool:
        async with watched.topology.turn:
            own = asyncio.create_task(watched.watch.tend())
            await asyncio.sleep(0)
            waited = watched.net.probes == 0
        await own
        return waited

    watched.watch._due = 0.0
    assert asyncio.run(both())
    assert watched.net.probes == 30


def test_what_an_unknown_version_has_stored_is_learned_anew(watched: Watched) -> None:
    watched.sweeps(1)
    for wrong in ({"learned": "no json"}, {"learned": "{}"}, {"measured_s": 3}):
        watched.store.put_document("health", wrong, watched.now_s)
        watched.store.close()
        watched.begin()
        assert watched.found() == []
        assert watched.sweeps(1) == 30


def test_a_daemon_that_is_not_to_measure_never_does(watched: Watched) -> None:
    watched.settings = Settings(state_dir=watched.settings.state_dir, reprobe={"every_s": 0})
    watched.begin()
    assert watched.sweeps(3) == 0 and watched.found() == []
