"""The links between a node's NVIDIA devices, by the names that `nvidia-smi topo -m` gives them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..placement.links import SELF, NodeLinks

Matrix = tuple[tuple[str, ...], ...]
_SWITCH = 2
"""NVML's number for an NVSwitch at the far end of a link."""
_MOST_LINKS = 36
_XGMI = re.compile(r"XGMI@([0-9.]+)")
_PATHS: dict[int, str] = {10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
"""NVML's common ancestors of two devices. Two on one board (0) are as near as any, like PIX."""


def read_device_links(binding: Any, handles: Sequence[Any]) -> Matrix:
    """How each pair of devices is joined; empty where the driver does not tell, which is not "by
    nothing".

    Two devices have as many NVLinks as lead from one to the other, and, through switches, as many
    as the one with fewer has to them.
    """
    try:
        addresses = [_address(binding.nvmlDeviceGetPciInfo(handle).busId) for handle in handles]
        peers = [_peers(binding, handle) for handle in handles]
        return tuple(
            tuple(
                SELF
                if a == b
                else _joined(binding, handles[a], handles[b], peers[a], peers[b], addresses[b])
                for b in range(len(handles))
            )
            for a in range(len(handles))
        )
    except (binding.NVMLError, AttributeError):
        return ()


def _peers(binding: Any, handle: Any) -> Counter[str]:
    """Active NVLinks of a device by the PCI address they lead to, those to switches under ""."""
    found: Counter[str] = Counter()
    for link in range(_MOST_LINKS):
        try:
            if not binding.nvmlDeviceGetNvLinkState(handle, link):
                continue
            if binding.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link) == _SWITCH:
                found[""] += 1
            else:
                found[_address(binding.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId)] += 1
        except binding.NVMLError:
            # The device has no such link, or none at all.
            continue
    return found


def _joined(
    binding: Any, one: Any, other: Any, of_one: Counter[str], of_other: Counter[str], to: str
) -> str:
    bonded = of_one[to] + min(of_one[""], of_other[""])
    if bonded:
        return f"NV{bonded}"
    return _PATHS.get(int(binding.nvmlDeviceGetTopologyCommonAncestor(one, other)), "PIX")


def _address(bus_id: bytes | str) -> str:
    text = bus_id.decode("ascii", "replace") if isinstance(bus_id, bytes) else bus_id
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def xgmi_name(bytes_per_s: float) -> str:
    """The entry of two AMD GPUs that xGMI joins; it carries its rate, which has no usual value."""
    return f"XGMI@{bytes_per_s / 1e9:g}"


def node_links(matrix: Matrix, devices: int) -> NodeLinks | None:
    """The links as a cluster describes them; None where they are unknown or not those of all."""
    even = all(matrix[a][b] == matrix[b][a] for a in range(len(matrix)) for b in range(len(matrix)))
    if devices < 2 or len(matrix) != devices or not even:
        return None
    names = {entry for row in matrix for entry in row}
    rates = {name: float(match[1]) * 1e9 for name in names if (match := _XGMI.fullmatch(name))}
    return NodeLinks(matrix=matrix, bandwidth=rates)
