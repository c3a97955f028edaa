"""Railweave on the fabric: jobs run over it, its links are watched, and its faults are survived."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from fabric.fabric import Fabric
from fabric.faults import Faults
from fabric.operator_seat import Seat, railweave_on
from fabric.topology import Plan

pytestmark = pytest.mark.soak

PLAN = Plan(leaves=3, spines=2, hosts_per_leaf=2, host_mbit=60, spine_mbit=60)
HEAD = "h2-1"
HOSTS = [HEAD, "h0-0", "h0-1", "h1-0", "h1-1", "h2-0"]
REPROBE = {
    "every_s": 1.0,
    "probes": {"transfer_bytes": 2**20, "transfer_s": 0.3, "pings": 5, "budget_s": 30.0},
    "rules": {"learn": 6, "history": 24, "window": 6, "worse": 4, "least_change": 0.3},
}
FOUND_S = 240.0
LEFT = 0.12
"""What a slow link keeps of its rate: less than half also of what a crowded machine measures."""


def not_well(seat: Seat) -> dict[str, Any]:
    return {name: found for name, found in seat.ask("network").items() if found["kind"] != "path"}


def sweeps(seat: Seat) -> int:
    log = (seat.folder / "state" / "daemon.log").read_text()
    return log.count("measured the network again")


def test_a_link_that_slows_down_is_noticed_and_the_next_job_placed_away_from_it() -> None:
    with Fabric(PLAN) as fabric, railweave_on(fabric, HOSTS, reprobe=REPROBE) as seat:
        faults = Faults(fabric)
        first = seat.run("first", devices=2)
        [placed] = seat.reaches(first, "RUNNING")["nodes"]
        leaves = {PLAN.domains()[node] for node in placed}
        assert len(leaves) == 1, "two ranks fit below one leaf"
        seat.passes(first, 10)
        seat.end("first")
        seat.reaches(first, "SUCCEEDED")
        assert re.search(r"weight (\d+) after \1 steps", seat.ask("logs", job_id=first)["text"])

        began = sweeps(seat)
        seat.until(lambda: sweeps(seat) >= began + 12, FOUND_S, "the network is learned")
        assert not_well(seat) == {}
        slow = placed[0]
        at_s = time.time()
        with faults.nic_slow(slow, LEFT * PLAN.host_mbit):
            seat.until(
                lambda: set(not_well(seat)) == {f"node {slow}"}, FOUND_S, "the slow link is noticed"
            )
            noticed_s = time.time() - at_s
            # The first bad samples of a crowded machine may be better than the link.
            seat.until(lambda: seat.ask("nodes")[slow][0] == "away", FOUND_S, "it is left out")
            finding = not_well(seat)[f"node {slow}"]
            assert finding["symptom"] == "bandwidth" and finding["factor"] < 0.5
            assert at_s - 1 <= finding["since_s"] <= at_s + noticed_s
            print(f"noticed after {noticed_s:.0f} s: {finding}")
            for verb in ("nodes", "topology"):
                shown = seat.ask("railweave", words=[verb])["text"]
                print(f"$ railweave {verb}\n{shown}")
                assert re.search(rf"not well: node {slow}: bandwidth at \d+% of usual since", shown)
            second = seat.run("second", devices=2)
            [elsewhere] = seat.reaches(second, "RUNNING")["nodes"]
            assert slow not in elsewhere and leaves.isdisjoint(PLAN.domains()[n] for n in elsewhere)
            told = seat.ask("events", kind="network_bad")["messages"]
            assert any(message.startswith(f"node {slow}: bandwidth at ") for message in told)
            state, reason = seat.ask("nodes")[slow]
            assert (state, "its network: bandwidth at" in reason) == ("away", True)
            print("\n".join(seat.ask("events", kind="launch")["messages"]))
            seat.end("second")
            seat.reaches(second, "SUCCEEDED")

        def well() -> list[str]:
            messages = seat.ask("events", kind="network_well")["messages"]
            return [each for each in messages if each.startswith(f"well again: node {slow}: ")]

        print(seat.until(well, FOUND_S, "the link is well again"))
        seat.until(lambda: seat.ask("nodes")[slow][0] == "ok", FOUND_S, "the node is used again")
        third = seat.run("third", devices=6)
        seat.reaches(third, "RUNNING")
        seat.end("third")
        assert slow in seat.reaches(third, "SUCCEEDED")["nodes"][0]


def test_slow_links_out_of_a_leaf_are_noticed_and_jobs_over_leaves_go_elsewhere() -> None:
    with Fabric(PLAN) as fabric, railweave_on(fabric, HOSTS, reprobe=REPROBE) as seat:
        faults = Faults(fabric)
        seat.until(lambda: sweeps(seat) >= 12, FOUND_S, "the network is learned")
        assert not_well(seat) == {}
        mbit = LEFT * PLAN.spine_mbit
        with faults.wire_slow(0, 0, mbit), faults.wire_slow(0, 1, mbit):
            # Some paths are judged before others, and then look like a node's.
            seat.until(
                lambda: set(not_well(seat)) == {"links out of leaf leaf0"},
                FOUND_S,
                "the slow links are noticed",
            )
            across = seat.run("across", devices=3)
            [nodes] = seat.reaches(across, "RUNNING")["nodes"]
            assert "leaf0" not in {PLAN.domains()[node] for node in nodes}
            seat.end("across")
            seat.reaches(across, "SUCCEEDED")


def test_a_job_survives_a_dead_spine_link_and_a_host_whose_cable_is_pulled() -> None:
    quiet = {"every_s": 0.0}
    with Fabric(PLAN) as fabric, railweave_on(fabric, HOSTS, reprobe=quiet) as seat:
        faults = Faults(fabric)
        job = seat.run("long", devices=3, max_restarts=3)
        [nodes] = seat.reaches(job, "RUNNING")["nodes"]
        assert len({PLAN.domains()[node] for node in nodes}) == 2, "three ranks cross the spines"
        seat.passes(job, 10)
        switch = fabric.hosts[nodes[0]].leaf
        with faults.wire_down(switch, 0):
            seat.passes(job, 20)
        with faults.wire_down(switch, 1):
            seat.passes(job, 20)
        assert len(seat.ask("job", job_id=job)["nodes"]) == 1, "it never stopped"
        lost = next(node for node in nodes if node != HEAD)
        with faults.nic_down(lost):
            after = seat.until(
                lambda: (
                    found
                    if len((found := seat.ask("job", job_id=job))["nodes"]) > 1
                    and found["state"] == "RUNNING"
                    else None
                ),
                150,
                "the job runs elsewhere",
            )
            assert after is not None and lost not in after["nodes"][-1]
            assert after["causes"][0] == "node_lost"
            seat.passes(job, 10)
            seat.end("long")
            seat.reaches(job, "SUCCEEDED")
        assert re.search(r"weight (\d+) after \1 steps", seat.ask("logs", job_id=job)["text"])
