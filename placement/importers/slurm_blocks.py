"""Groups of nodes that Slurm names, blocks and rings, beside or below a tree of switches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from .facts import Network, TierFacts
from .hostlists import folded


def grouped(kind: str, named: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The figures of named groups: how many, of which sizes, and who is in each."""
    return {
        f"{kind}s": len(named),
        f"nodes_per_{kind}": sorted({len(members) for members in named.values()}),
        f"nodes_of_{kind}": {name: folded(members) for name, members in named.items()},
    }


def with_groups(network: Network | None, groups: Mapping[str, Mapping[str, str]]) -> Network:
    """A network with one more tier for each kind of group, by node, nearest to the nodes."""
    tiers = tuple(TierFacts(kind) for kind in groups)
    known: Mapping[str, Mapping[str, str]] = network.domains if network else {}
    names = dict.fromkeys([*known, *(node for of_node in groups.values() for node in of_node)])
    domains = {
        node: {
            **{kind: of_node[node] for kind, of_node in groups.items() if node in of_node},
            **known.get(node, {}),
        }
        for node in names
    }
    if network is None:
        return Network(tiers, domains)
    return Network((*tiers, *network.tiers), domains, network.spine)


def block_warnings(blocks: Mapping[str, Sequence[str]], sizes: Sequence[int]) -> list[str]:
    """What Slurm would not accept or could never use of the sizes of blocks."""
    warnings = []
    total = sum(len(members) for members in blocks.values())
    never = [size for size in sizes if size > total]
    if never:
        shown = ", ".join(map(str, never))
        warnings.append(f"BlockSizes {shown} can never be filled: there are {total} nodes")
    if sizes:
        small = [name for name, members in blocks.items() if 0 < len(members) < sizes[0]]
        if small:
            shown = ", ".join(small[:6])
            found = f"{len(small)} blocks have fewer nodes than the base size {sizes[0]}: {shown}"
            warnings.append(found)
    for low, high in pairwise(sizes):
        factor = high // low if low else 0
        if not low or high % low or factor & (factor - 1) or factor < 2:
            warnings.append(f"BlockSizes {low},{high}: not a power of two times the one before")
    return warnings
