"""Packing under side constraints: pins first, then segment after segment where each fits."""

from __future__ import annotations

from collections import Counter, defaultdict

from ..cluster import NODE_TIER, Cluster
from ..constraints import Constraints, Device
from ..pcg import PCG


def pack(constraints: Constraints, pcg: PCG, cluster: Cluster) -> list[Device] | None:
    """Devices for all ranks that keep segments and pins; None when they do not fit this way.

    The constraints on domains are left to the free devices of `cluster`.
    """
    packing = _Packing(constraints, pcg, cluster)
    return packing.devices() if packing.pin() and packing.fill() else None


class _Packing:
    def __init__(self, constraints: Constraints, pcg: PCG, cluster: Cluster) -> None:
        self._want, self._ranks = constraints, pcg.world_size
        self._needs = pcg.required_accelerators()
        self._free = {node.name: list(node.usable_devices) for node in cluster.nodes}
        self._kind = {node.name: node.accelerator for node in cluster.nodes}
        self._found: dict[int, Device] = {}
        segments = constraints.segments
        tier = segments.tier if segments else cluster.spine
        self._length = segments.ranks if segments else pcg.world_size
        self._domain: dict[str, str] = {}
        self._inside: defaultdict[str, list[str]] = defaultdict(list)
        for node in cluster.nodes:
            outermost = tier == cluster.spine
            name = tier if outermost else node.domains.get(tier, node.name)
            name = node.name if tier == NODE_TIER else name
            self._domain[node.name] = name
            self._inside[name].append(node.name)

    def devices(self) -> list[Device]:
        return [self._found[rank] for rank in range(self._ranks)]

    def pin(self) -> bool:
        """Give pinned ranks their devices; those pinned to a device first."""
        for pin in sorted(self._want.pinned, key=lambda p: p.device is None):
            free = self._free[pin.node]
            wanted = self._needs.get(pin.rank, self._kind[pin.node])
            device = pin.device if pin.device is not None else next(iter(free), None)
            if device not in free or wanted != self._kind[pin.node] or device is None:
                return False
            free.remove(device)
            self._found[pin.rank] = (pin.node, device)
        return True

    def fill(self) -> bool:
        """Give all other ranks devices, segment by segment: hard ones first."""
        segments = [
            list(range(first, min(first + self._length, self._ranks)))
            for first in range(0, self._ranks, self._length)
        ]

        def ease(segment: list[int]) -> tuple[bool, bool, int]:
            pinned = any(rank in self._found for rank in segment)
            needy = any(rank in self._needs for rank in segment)
            return not pinned, not needy, -len(segment)

        return all(self._fill_one(segment) for segment in sorted(segments, key=ease))

    def _fill_one(self, segment: list[int]) -> bool:
        homes = {self._domain[self._found[r][0]] for r in segment if r in self._found}
        rest = [rank for rank in segment if rank not in self._found]
        options = list(homes) if homes else list(self._inside)
        if len(homes) > 1:
            return False
        return any(self._fill_in(domain, rest) for domain in options)

    def _fill_in(self, domain: str, ranks: list[int]) -> bool:
        names = self._inside[domain]
        have = Counter[str]()
        for name in names:
            have[self._kind[name]] += len(self._free[name])
        need = Counter(self._needs[rank] for rank in ranks if rank in self._needs)
        if sum(have.values()) < len(ranks) or any(have[kind] < n for kind, n in need.items()):
            return False
        for rank in sorted(ranks, key=lambda r: (r not in self._needs, r)):
            wanted = self._needs.get(rank)
            home = next(
                name for name in names if self._free[name] and wanted in (None, self._kind[name])
            )
            self._found[rank] = (home, self._free[home].pop(0))
        return True
