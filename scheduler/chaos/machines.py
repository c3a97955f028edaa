"""Switching the nodes of an embedded cluster off and on again."""

from __future__ import annotations

from collections.abc import Callable

from ..embedded import HEAD, EmbeddedCluster, EmbeddedNode


class EmbeddedMachines:
    """The machines of an embedded cluster, as `Driver` wants them.

    changed: called after a node was switched off or on, as to write the cluster down again.
    """

    def __init__(
        self, cluster: EmbeddedCluster, changed: Callable[[], None] = lambda: None
    ) -> None:
        self._cluster = cluster
        self._changed = changed
        self._off: dict[str, EmbeddedNode] = {}

    def head_refusal(self) -> str:
        """Why the head cannot be started again once it has ended; empty where it can."""
        if self._cluster.durable:
            return ""
        return (
            "the control store of this embedded cluster is in memory only, so that nobody can "
            "start its head again; `railweave up --embedded` starts one that can"
        )

    def power_off(self, node: str) -> None:
        """End every process of a node at once. Raises LookupError where it is off already."""
        on = self._cluster.head_runs if node == HEAD else node in self._cluster.node_names
        if not on:
            raise LookupError(f"{node} is off already")
        if node != HEAD:
            self._off[node] = self._cluster.node(node)
        self._cluster.kill_node(node)
        self._changed()

    def power_on(self, node: str) -> None:
        """Start a node again that was switched off here; returns once it is up."""
        if node == HEAD:
            self.restore(node)
        elif node in self._off:
            self._cluster.add_node(self._off[node])
            del self._off[node]
            self._changed()

    def restore(self, node: str) -> bool:
        """Start a node again that has ended by itself; whether it had."""
        if node == HEAD:
            if self._cluster.head_runs:
                return False
            self._cluster.restart_head()
            self._changed()
            return True
        if node not in self._cluster.ended_nodes():
            return False
        planned = self._cluster.node(node)
        self._cluster.kill_node(node)
        self._off[node] = planned
        self.power_on(node)
        return True
