"""Bringing pinned ranks onto their nodes and devices in a placement made without the pins."""

from __future__ import annotations

from collections import defaultdict

from ..cluster import Cluster
from ..constraints import Constraints, Device


def with_pins(
    constraints: Constraints, cluster: Cluster, devices: list[Device]
) -> list[Device] | None:
    """The placement after exchanges that put every pinned rank where it must be, or None.

    Where it can be, all ranks of two nodes change places, so that what was together stays so.
    """
    if not constraints.pinned:
        return devices
    found = _Exchange(cluster, devices)
    for pin in sorted(constraints.pinned, key=lambda pin: pin.device is None):
        if not found.bring(pin.rank, pin.node, pin.device):
            return None
    return found.devices


class _Exchange:
    def __init__(self, cluster: Cluster, devices: list[Device]) -> None:
        self.devices = list(devices)
        self._usable = {node.name: node.usable_devices for node in cluster.nodes}
        self._fixed: set[int] = set()

    def bring(self, rank: int, node: str, device: int | None) -> bool:
        if self.devices[rank][0] != node and not self._swap_nodes(self.devices[rank][0], node):
            at = device if device is not None else self._open_device(node)
            if at is None or not self._put(rank, (node, at)):
                return False
        moves = device is not None and self.devices[rank][1] != device
        if moves and not self._put(rank, (node, device or 0)):
            return False
        self._fixed.add(rank)
        return True

    def _swap_nodes(self, one: str, other: str) -> bool:
        """All ranks of two nodes change places; False when either has not the room."""
        held: defaultdict[str, list[int]] = defaultdict(list)
        for rank, (name, _) in enumerate(self.devices):
            if name in (one, other):
                held[name].append(rank)
        if self._fixed & {*held[one], *held[other]}:
            return False
        places: dict[int, Device] = {}
        for source, goal in ((one, other), (other, one)):
            if len(held[source]) > len(self._usable[goal]):
                return False
            free = list(self._usable[goal])
            for rank in held[source]:
                index = self.devices[rank][1]
                if index in free:
                    free.remove(index)
                    places[rank] = (goal, index)
            for rank in held[source]:
                if rank not in places:
                    places[rank] = (goal, free.pop(0))
        for rank, place in places.items():
            self.devices[rank] = place
        return True

    def _open_device(self, node: str) -> int | None:
        """A device of a node that no fixed rank has; a free one if there is any."""
        by_device = {d: r for r, d in enumerate(self.devices) if d[0] == node}
        open_ones = [
            index for index in self._usable[node] if by_device.get((node, index)) not in self._fixed
        ]
        empty = [index for index in open_ones if (node, index) not in by_device]
        return next(iter([*empty, *open_ones]), None)

    def _put(self, rank: int, device: Device) -> bool:
        """Put a rank on a device; a rank that is there takes its place."""
        if device[1] not in self._usable[device[0]]:
            return False
        holder = next((r for r, d in enumerate(self.devices) if d == device), None)
        if holder in self._fixed:
            return False
        if holder is not None:
            self.devices[holder] = self.devices[rank]
        self.devices[rank] = device
        return True
