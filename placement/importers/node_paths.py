"""Paths inside a node: their order, the interfaces nearest to a device, and links from names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from ..links import MOST_LINKED_DEVICES, SELF, NodeLinks

PATHS: tuple[str, ...] = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""From the nearest to the farthest, in the words of `nvidia-smi topo -m`."""
XGMI_BYTES_PER_S = 50e9
"""One xGMI link of 16 lanes at 25 GT/s, taken where a file gives no rate (MI50 to MI250)."""
ONE_SWITCH, SWITCHES, HOST_BRIDGE, SAME_NUMA, ANY_NUMA = PATHS


def nearest(paths: Mapping[str, str]) -> tuple[str | None, tuple[str, ...]]:
    """The nearest of the paths to several interfaces and all that have it; None without any."""
    if not paths:
        return None, ()
    best = min(paths.values(), key=PATHS.index)
    return best, tuple(name for name, path in paths.items() if path == best)


def pci_path(
    a: Sequence[str],
    b: Sequence[str],
    *,
    own_ports: int,
    same_root: bool,
    same_numa: bool | None,
) -> str:
    """What lies between two PCI functions, given the bridges above each, the outermost first.

    own_ports: bridges that a function has for itself below a switch that it shares: 1 where the
    ports of a switch are listed one by one, 0 where a switch is one bridge. same_root: below one
    host bridge. same_numa: None where it is not known, which is taken for the farthest.
    """
    shared = 0
    while shared < min(len(a), len(b)) and a[shared] == b[shared]:
        shared += 1
    if shared:
        nearby = max(len(a), len(b)) - shared <= own_ports
        return ONE_SWITCH if nearby else SWITCHES
    if same_root:
        return HOST_BRIDGE
    return SAME_NUMA if same_numa else ANY_NUMA


def in_use(nearest_nics: Sequence[Sequence[str]], nics: Sequence[str]) -> tuple[str, ...]:
    """The interfaces that are nearest to a device, in their order: the others serve no rail."""
    wanted = {name for names in nearest_nics for name in names}
    return tuple(name for name in nics if name in wanted)


def pairs(labels: Sequence[str], matrix: Sequence[Sequence[str]]) -> dict[str, str]:
    """`a-b` and what joins them, for every pair of devices."""
    return {
        f"{labels[a]}-{labels[b]}": matrix[a][b] for a, b in combinations(range(len(labels)), 2)
    }


def counted(values: Sequence[str]) -> dict[str, int]:
    """How often each value is there, the most frequent first."""
    counts = {value: values.count(value) for value in dict.fromkeys(values)}
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def links_of(
    matrix: Sequence[Sequence[str]], bandwidth: Mapping[str, float] | None = None
) -> NodeLinks | None:
    """The links of at least two devices, as far as a cluster can hold them; else None.

    matrix: symmetric; the diagonal is taken to be a device with itself, whatever it says.
    """
    size = len(matrix)
    if not 2 <= size <= MOST_LINKED_DEVICES:
        return None
    names = tuple(
        tuple(SELF if a == b else entry for b, entry in enumerate(row))
        for a, row in enumerate(matrix)
    )
    return NodeLinks(matrix=names, bandwidth=dict(bandwidth or {}))
