"""What a loss leaves of a job: ranks that stay, ranks that must move, devices they may move to."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from ..cluster import Cluster, Node, NodeState
from ..errors import Infeasible, InvalidInput, Problem
from ..evaluate import is_device
from ..pcg import PCG

Device = tuple[str, int]
_SHOWN = 3


@dataclass(frozen=True)
class Loss:
    """A placement after a loss.

    devices: where the ranks were. forced: the ranks that must move, ascending.
    spares: device indices by node that the job does not have and may take, ascending. gone: what
    was named as lost.
    """

    pcg: PCG
    cluster: Cluster
    devices: list[Device]
    forced: list[int]
    spares: dict[str, list[int]]
    gone: tuple[str | Device, ...] = ()

    @classmethod
    def of(
        cls, devices: list[Device], pcg: PCG, cluster: Cluster, lost: Iterable[str | Device]
    ) -> Loss:
        """Work out what is left. Raises InvalidInput for what does not fit together."""
        if isinstance(lost, str):
            problem = Problem("lost", f"found the text {lost!r}", f"give a list: [{lost!r}]")
            raise InvalidInput("repair", [problem])
        gone = tuple(lost)
        gone_nodes, gone_devices = _lost(devices, pcg, cluster, gone)
        count = {node.name: node.devices for node in cluster.nodes}
        forced = [
            rank
            for rank, (name, index) in enumerate(devices)
            if name in gone_nodes or (name, index) in gone_devices or index >= count.get(name, 0)
        ]
        must = set(forced)
        kept = {device for rank, device in enumerate(devices) if rank not in must}
        held = {name for name, _ in kept} | {name for name, _ in gone_devices}
        spares: dict[str, list[int]] = {}
        for node in cluster.nodes:
            if node.name in gone_nodes or node.state is not NodeState.FREE:
                continue
            free = list(node.usable_devices)
            if node.name in held:
                here = [(node.name, index) for index in free]
                free = [d[1] for d in here if d not in kept and d not in gone_devices]
            if free:
                spares[node.name] = free
        loss = cls(pcg, cluster, devices, forced, spares, gone)
        loss._check_enough()
        return loss

    @cached_property
    def needs(self) -> dict[int, str]:
        """Accelerator kind by rank, for the ranks that need a certain one."""
        return self.pcg.required_accelerators()

    def best_case(self) -> Cluster:
        """The cluster with exactly the devices free that the repaired job may have."""
        must = set(self.forced)
        free = {name: set(indices) for name, indices in self.spares.items()}
        for rank, (name, index) in enumerate(self.devices):
            if rank not in must:
                free.setdefault(name, set()).add(index)

        def as_free(node: Node) -> Node:
            here = tuple(sorted(free.get(node.name, ())))
            return node.model_copy(update={"state": NodeState.FREE, "free_devices": here})

        return self.cluster.with_nodes(tuple(as_free(node) for node in self.cluster.nodes))

    def _check_enough(self) -> None:
        kinds = {node.name: node.accelerator for node in self.cluster.nodes}
        have = Counter[str]()
        for name, indices in self.spares.items():
            have[kinds[name]] += len(indices)
        need = Counter(self.needs[rank] for rank in self.forced if rank in self.needs)
        short = {kind: need[kind] - have[kind] for kind in sorted(need) if need[kind] > have[kind]}
        parts = [
            f"{need[kind]} ranks need another {kind} device and {have[kind]} are free: "
            f"{count} short"
            for kind, count in short.items()
        ]
        total = sum(have.values())
        if len(self.forced) > total:
            parts.append(
                f"{len(self.forced)} ranks need another device and {total} are free: "
                f"{len(self.forced) - total} short"
            )
        if parts:
            parts += self._nearest(set(short) if len(self.forced) <= total else set())
            name = self.cluster.name
            raise Infeasible(f"no repair on cluster {name!r}: " + "; ".join(parts))

    def _nearest(self, kinds: set[str]) -> list[str]:
        """The nearest devices that would do but cannot be had; of `kinds`, or of any when empty."""
        node_of = {node.name: node for node in self.cluster.nodes}
        tiers = [tier.name for tier in self.cluster.tiers[:-1]]
        mine = {name for name, _ in self.devices}
        around = [node_of[name] for name in sorted(mine) if name in node_of]
        near = [{node.domains[tier] for node in around} for tier in tiers]
        found = []
        for node in self.cluster.nodes:
            taken = node.devices - len(self.spares.get(node.name, ()))
            if node.name in mine or taken == 0 or (kinds and node.accelerator not in kinds):
                continue
            steps = next((i for i, t in enumerate(tiers) if node.domains[t] in near[i]), len(tiers))
            found.append((steps, node.name, node, taken))
        names = [*tiers, self.cluster.spine]
        shown = [
            f"{name} ({taken} {node.accelerator}, "
            f"{'taken' if node.state is NodeState.FREE else node.state.value}, "
            f"meets the job at {names[steps]})"
            for steps, name, node, taken in sorted(found, key=lambda f: f[:2])[:_SHOWN]
        ]
        return [f"nearest that would do: {', '.join(shown)}"] if shown else []


def _lost(
    devices: list[Device], pcg: PCG, cluster: Cluster, lost: Iterable[str | Device]
) -> tuple[set[str], set[Device]]:
    """The nodes and devices named as lost. Raises InvalidInput."""
    problems = []
    if len(devices) != pcg.world_size:
        found = f"{len(devices)} devices for {pcg.world_size} ranks"
        problems.append(Problem("placement", found, "give the placement of this PCG"))
    count = {node.name: node.devices for node in cluster.nodes}
    held = set(devices)
    known = {*count, *(name for name, _ in devices)}
    nodes: set[str] = set()
    single: set[Device] = set()
    for item in lost:
        if not isinstance(item, str) and not is_device(item):
            fix = "give a node's name, or (node name, device index)"
            problems.append(Problem("lost", f"found {item!r:.60}", fix))
            continue
        name = item if isinstance(item, str) else item[0]
        if name not in known:
            close = difflib.get_close_matches(name, sorted(known), n=1)
            hint = f"did you mean {close[0]!r}?" if close else "name nodes of the cluster"
            problems.append(Problem("lost", f"no node {name!r}", hint))
        elif isinstance(item, str):
            nodes.add(item)
        elif not 0 <= item[1] < count.get(name, 0) and (name, item[1]) not in held:
            have = f"it has {f'0 to {count[name] - 1}' if count.get(name) else 'none'}"
            if name not in count:
                have = "the cluster has no such node any more, and the job no such device"
            problems.append(Problem("lost", f"device {item[1]} of {name!r}", have))
        else:
            single.add((item[0], item[1]))
    if problems:
        raise InvalidInput("repair", problems)
    return nodes, single
