"""What of a cluster can be switched off on purpose, or why it cannot; nothing is started here."""

from __future__ import annotations

from typing import Any

import pytest
from railweave.scheduler.chaos.acts import Acts
from railweave.scheduler.chaos.kinds import FACTS, Kind, Where
from railweave.scheduler.chaos.machines import EmbeddedMachines
from railweave.scheduler.embedded import EmbeddedCluster

NOBODY: Any = None


def refusals(machines: EmbeddedMachines | None) -> dict[Kind, str]:
    acts = Acts(NOBODY, NOBODY, NOBODY, machines, None)
    return {kind: why for kind in Kind if (why := acts.refusal(kind))}


@pytest.mark.parametrize("durable", [False, True])
def test_the_head_is_killed_only_where_it_can_be_started_again(durable: bool) -> None:
    found = refusals(EmbeddedMachines(EmbeddedCluster([], durable=durable)))
    heads = {kind for kind in Kind if FACTS[kind].where is Where.HEAD}
    assert heads == {Kind.GCS_KILL, Kind.HEAD_KILL}
    assert heads & found.keys() == (set() if durable else heads)
    for kind in heads & found.keys():
        assert "in memory only" in found[kind] and "railweave up --embedded" in found[kind]
    assert Kind.NODE_POWER not in found and Kind.CABLE_PULLED in found


def test_nobody_switches_nodes_of_a_cluster_off_that_is_not_embedded() -> None:
    found = refusals(None)
    kinds = {kind for kind in Kind if FACTS[kind].where in (Where.NODE, Where.HEAD)}
    assert kinds <= found.keys()
    assert all("switch the machine off yourself" in found[kind] for kind in kinds)
