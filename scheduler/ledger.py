"""What is free: the cluster less the devices jobs hold and the nodes set aside. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ..placement.cluster import Cluster, Node, NodeState
from ..placement.inference.health_effects import Effects
from .health_news import reason_of
from .records import Device, Holding


@dataclass(frozen=True)
class Supply:
    """Devices in numbers.

    total, free: by accelerator kind; every device of the cluster, and those that can be had now.
    held: by job. away: devices of nodes that cannot be used now, with the reason, by node.
    """

    total: dict[str, int] = field(default_factory=dict)
    free: dict[str, int] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)
    away: dict[str, tuple[int, str]] = field(default_factory=dict)


class Ledger:
    """The devices of a cluster at one moment.

    cluster: as probed. held: who has which device. away: why a node cannot be used, by node.
    effects: what of the network is not well, and means for placements; the nodes that this leaves
    out are among those away.
    """

    def __init__(
        self,
        cluster: Cluster,
        held: Mapping[Device, Holding],
        away: Mapping[str, str],
        effects: Effects | None = None,
    ) -> None:
        self.cluster = cluster
        self.held = dict(held)
        self.away = dict(away)
        self.effects = effects or Effects()

    def free_devices(self, node: Node) -> tuple[int, ...]:
        """The device indices of a node that a new attempt may take, ascending."""
        if node.name in self.away:
            return ()
        return tuple(d for d in node.usable_devices if (node.name, d) not in self.held)

    def supply(self) -> Supply:
        """The devices in numbers."""
        total: Counter[str] = Counter()
        free: Counter[str] = Counter()
        away: dict[str, tuple[int, str]] = {}
        for node in self.cluster.nodes:
            total[node.accelerator] += node.devices
            free[node.accelerator] += len(self.free_devices(node))
            reason = self.away.get(node.name)
            if reason is None and node.state is not NodeState.FREE:
                reason = node.state.value
            if reason is not None and node.devices:
                away[node.name] = (node.devices, reason)
        held = Counter(holding.job_id for holding in self.held.values())
        return Supply(dict(total), dict(free), dict(held), away)

    def available(self, but: Collection[str] = ()) -> Cluster:
        """The cluster as a placement that starts now may use it, all nodes of `but` left out."""
        left_out = set(but)
        return self.cluster.with_nodes(
            tuple(
                node.model_copy(update={"state": NodeState.BUSY, "free_devices": ()})
                if node.name in left_out
                else self._as_free(node)
                for node in self.cluster.nodes
            )
        )

    def shown(self) -> Cluster:
        """The cluster as it is now, for people; nodes that are only slow count as drained."""
        slow = {
            name
            for name, finding in self.effects.out.items()
            if finding.factor and self.away.get(name) == reason_of(finding)
        }
        drained = {"state": NodeState.DRAINED}
        nodes = self.available().nodes
        return self.cluster.with_nodes(
            tuple(n.model_copy(update=drained) if n.name in slow else n for n in nodes)
        )

    def whole(self) -> Cluster:
        """The cluster with every device of every node free: what it could hold at its best."""
        best = {"state": NodeState.FREE, "free_devices": None}
        return self.cluster.with_nodes(
            tuple(node.model_copy(update=best) for node in self.cluster.nodes)
        )

    def _as_free(self, node: Node) -> Node:
        if node.name in self.away:
            return node.model_copy(update={"state": NodeState.FAULTY, "free_devices": ()})
        return node.model_copy(update={"free_devices": self.free_devices(node)})
