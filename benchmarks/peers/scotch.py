"""Scotch: static mapping of the traffic graph onto the free leaves of a tree.

Source: Pellegrini (gitlab.inria.fr/scotch), Debian package `scotch`: `scotch_gmap` onto the
architecture `sub(tleaf)`. The tree has the cluster's tiers, evened out to its widest domains; the
subset is the nodes that may be used.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from ..job import Device, Domain, Job
from . import Candidate, Unavailable
from .kueue import best_fit

NAME = "Scotch sub(tleaf)"
UNPACKED = Path(__file__).resolve().parents[2] / "build" / "scotch" / "usr"
LARGEST_WEIGHT = 100_000
TIER_COSTS = (10, 100)
"""How much dearer a link of the tree is than one a tier further in."""


def candidates(job: Job, seed: int, starts: int = 1) -> Iterator[Candidate]:
    """Strategies for quality and for balance, over BestFit's nodes and over all that are free."""
    program = _program()
    room = {
        "BestFit's nodes": best_fit(job, 1),
        "all free nodes": [(node, node.capacity) for node in job.nodes],
    }
    for among, nodes in room.items():
        if among == "all free nodes" and sum(c for _, c in nodes) == len(job.blocks):
            continue
        for name, option in (("quality", "-cq"), ("balance", "-cb")):
            for step in TIER_COSTS:
                place = partial(_placed, program, job, nodes, option, step)
                yield Candidate(f"{name}, tier cost {step}, {among}", place)


def _program() -> Path:
    # Bytes times tier costs overflow the 32-bit build.
    name = "scotch_gmap-int64"
    found = shutil.which(name) or shutil.which(name, path=str(UNPACKED / "bin"))
    if found is None:
        raise Unavailable("apt-get install scotch, or make build/scotch (Debian, without root)")
    return Path(found).resolve()


def _placed(
    program: Path, job: Job, nodes: list[tuple[Domain, int]], option: str, step: int
) -> list[Device]:
    return job.devices(mapped(program, job, nodes, option, step))


def mapped(
    program: Path, job: Job, nodes: list[tuple[Domain, int]], option: str, step: int
) -> list[int]:
    """Node number of each block; blocks that Scotch stacked on a full node move to the nearest."""
    slots = [node for node, count in nodes for _ in range(count)]
    leaf_of, architecture = _tree(job, slots, step)
    with tempfile.TemporaryDirectory() as folder:
        graph, target, mapping = (Path(folder) / name for name in ("graph", "target", "mapping"))
        graph.write_text(_graph(job, isolated=len(slots) - len(job.blocks)))
        target.write_text(architecture)
        libraries = ":".join(map(str, program.parents[1].glob("lib/*/scotch-int64")))
        subprocess.run(
            [str(program), option, "-b0.0", str(graph), str(target), str(mapping)],
            check=True,
            capture_output=True,
            env=os.environ | {"LD_LIBRARY_PATH": libraries},
        )
        pairs = [line.split() for line in mapping.read_text().splitlines()[1:]]
    wanted = {int(block): int(leaf) for block, leaf in pairs}
    return _spread(wanted, slots, leaf_of, len(job.blocks))


def _tree(job: Job, slots: list[Domain], step: int) -> tuple[list[int], str]:
    """The tree's leaf of each slot, and the architecture of these leaves in Scotch's format."""
    widths: list[int] = []
    position: dict[tuple[str, ...], int] = {}
    level = [job.root]
    while level[0].children:
        widths.append(max(len(domain.children) for domain in level))
        for domain in level:
            for number, child in enumerate(domain.children):
                position[child.path] = number
        level = [child for domain in level for child in domain.children]
    widths.append(max(node.capacity for node in job.nodes))
    leaves = []
    used: defaultdict[tuple[str, ...], int] = defaultdict(int)
    for slot in slots:
        leaf = 0
        for depth in range(1, len(slot.path) + 1):
            leaf = leaf * widths[depth - 1] + position[slot.path[:depth]]
        leaves.append(leaf * widths[-1] + used[slot.path])
        used[slot.path] += 1
    costs = [step**power for power in range(len(widths) - 1, -1, -1)]
    # Scotch refuses levels of one child; leaving them out changes no leaf's number.
    branching = [pair for pair in zip(widths, costs, strict=True) if pair[0] > 1] or [(2, 1)]
    links = " ".join(f"{width} {cost}" for width, cost in branching)
    ordered = sorted(leaves)
    text = f"sub {len(leaves)} {' '.join(map(str, ordered))}\ntleaf {len(branching)} {links}\n"
    return leaves, text


def _graph(job: Job, isolated: int) -> str:
    """The traffic graph in Scotch's format; isolated vertices stand for nodes left empty."""
    heaviest = max(job.edges.values(), default=1.0)
    near: list[list[str]] = [[] for _ in range(len(job.blocks) + isolated)]
    for (here, there), size in job.edges.items():
        weight = max(1, round(LARGEST_WEIGHT * size / heaviest))
        near[here] += [str(weight), str(there)]
        near[there] += [str(weight), str(here)]
    arcs = 2 * len(job.edges)
    lines = [f"0\n{len(near)} {arcs}\n0 010"]
    lines += [f"{len(row) // 2} {' '.join(row)}" for row in near]
    return "\n".join(lines) + "\n"


def _spread(
    wanted: dict[int, int], slots: list[Domain], leaf_of: list[int], blocks: int
) -> list[int]:
    slot_at = {leaf: slot for slot, leaf in enumerate(leaf_of)}
    ordered = sorted(leaf_of)
    free = set(range(len(slots)))
    chosen: dict[int, int] = {}
    stacked = []
    for block in range(blocks):
        slot = slot_at[ordered[wanted[block]]]
        if slot in free:
            free.remove(slot)
            chosen[block] = slot
        else:
            stacked.append((block, slots[slot].path))
    for block, path in stacked:
        slot = max(sorted(free), key=lambda s: _shared(slots[s].path, path))
        free.remove(slot)
        chosen[block] = slot
    return [slots[chosen[block]].node for block in range(blocks)]


def _shared(here: tuple[str, ...], there: tuple[str, ...]) -> int:
    return next((i for i, (a, b) in enumerate(zip(here, there, strict=True)) if a != b), len(here))
