"""Slurm's topology/tree: how it picks leaf switches for a job, written anew from its behaviour.

Source: SchedMD/slurm, plugin topology/tree. Leaves are taken one by one. Two leaves are compared
at the lowest pair of ancestors where either could hold what is still needed: the tighter fit wins;
when neither fits up to where their ancestors meet, the one with more free nodes wins. A leaf nearer
to those already taken wins when it fits, and only equally near ones are compared further.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from ..job import Device, Domain, Job
from . import Candidate

NAME = "Slurm tree"


def candidates(job: Job, seed: int, starts: int = 1) -> Iterator[Candidate]:
    """The rule has no settings; ranks are laid in each order over its nodes."""
    for name, order in job.orders.items():
        yield Candidate(f"ranks {name}", partial(_placed, job, order))


def _placed(job: Job, order: list[int]) -> list[Device]:
    return job.laid(tree_nodes(job), order)


@dataclass(eq=False)
class _Switch:
    parent: _Switch | None
    level: int
    free: int
    nodes: list[Domain] = field(default_factory=list)
    distance: int = 0
    ancestors: list[_Switch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ancestors = [self, *(self.parent.ancestors if self.parent else ())]


def tree_nodes(job: Job) -> list[tuple[Domain, int]]:
    """Nodes and the blocks each takes, leaf by leaf."""
    leaves: list[_Switch] = []
    _build(job.root, None, len(job.levels), leaves)
    left = len(job.blocks)
    taken: list[tuple[Domain, int]] = []
    while left > 0:
        best: _Switch | None = None
        for leaf in leaves:
            if leaf.free:
                best = leaf if best is None else _better(leaf, best, left)
        if best is None:
            raise ValueError(f"{left} blocks do not fit")
        for node in best.nodes:
            count = min(node.capacity, left)
            if count:
                taken.append((node, count))
                left -= count
        used = best.free
        chain = best.ancestors
        for switch in chain:
            switch.free -= used
        for leaf in leaves:
            common = next(i for i, up in enumerate(leaf.ancestors) if up in chain)
            leaf.distance += 2 * common
    return taken


def _build(domain: Domain, parent: _Switch | None, level: int, leaves: list[_Switch]) -> None:
    switch = _Switch(parent, level, domain.capacity)
    if level == 0:
        switch.nodes = domain.children
        leaves.append(switch)
        return
    for child in domain.children:
        _build(child, switch, level - 1, leaves)


def _better(candidate: _Switch, best: _Switch, needed: int) -> _Switch:
    preferred, fits = _compared(candidate, best, needed)
    nearer = candidate.distance < best.distance and fits
    as_near = candidate.distance == best.distance and preferred > 0
    return candidate if nearer or as_near else best


def _compared(first: _Switch, second: _Switch, needed: int) -> tuple[int, bool]:
    """(positive when the first is the better fit, whether it or its ancestor fits)."""
    while True:
        first_fits, second_fits = first.free >= needed, second.free >= needed
        if first_fits and second_fits:
            return second.free - first.free, True
        if first_fits or second_fits:
            return (1 if first_fits else -1), first_fits
        if first.parent is second.parent or first.parent is None or second.parent is None:
            return first.free - second.free, False
        first, second = first.parent, second.parent
