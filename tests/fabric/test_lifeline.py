"""A pulled cable tells nobody anything; the line to the node tells it all the same."""

from __future__ import annotations

import queue

from railweave.agents.lifeline import Break, LifelineEnd, Lifelines, reaches
from waiting import wait_until

from fabric.fabric import Fabric
from fabric.faults import Faults
from fabric.namespaces import within

HEAD, NODE, PEER = "h0-0", "h1-0", "h1-1"


def test_a_machine_that_is_gone_without_a_word_is_out_of_reach_and_its_peers_agree(
    fabric: Fabric, faults: Faults
) -> None:
    address = fabric.hosts[NODE].address
    end = within(fabric.namespace(NODE), lambda: LifelineEnd(address))
    broken: queue.Queue[tuple[str, Break, int]] = queue.Queue()
    lines = Lifelines(lambda *told: broken.put(told))

    def watched() -> bool:
        return within(fabric.namespace(HEAD), lambda: lines.watch(NODE, address, end.port))

    def seen_by_peer() -> bool:
        return within(fabric.namespace(PEER), lambda: reaches(address, end.port, 0.5))

    try:
        wait_until(watched, 30, "there is a line")
        first = lines.heard_at(NODE)
        wait_until(lambda: lines.heard_at(NODE) != first, 30, "the node is heard")
        wait_until(seen_by_peer, 30, "its peer reaches it")
        with faults.nic_down(NODE):
            assert broken.get(timeout=60) == (NODE, Break.OUT_OF_REACH, end.port)
            assert not seen_by_peer()
        wait_until(watched, 60, "there is a line again")
        with faults.partition([0], [1]):
            assert broken.get(timeout=60) == (NODE, Break.OUT_OF_REACH, end.port)
            wait_until(seen_by_peer, 30, "its peer behind the same switch reaches it")
    finally:
        lines.close()
        end.close()
