"""Kueue's topology-aware scheduling: the BestFit rule, written anew from its description.

Source: kubernetes-sigs/kueue, KEP-2724, and the behaviour of its flavor snapshot. The lowest level
at or above the preferred one with a domain that fits everything takes the fullest such domain;
where none fits at the top, domains are taken from the largest down and the last is the smallest
that holds the rest. Going down, the children of all chosen domains are taken by the same rule; with
slices (podset-slice-required-topology) each chosen domain keeps its own count.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ..job import Device, Domain, Job
from . import Candidate

NAME = "Kueue BestFit"

Taken = list[tuple[Domain, int]]


def candidates(job: Job, seed: int, starts: int = 1) -> Iterator[Candidate]:
    """Preferred at each tier, and slices of each unit's size kept in one outermost domain."""
    for depth, level in reversed(list(enumerate(job.levels, start=1))):
        for name, order in job.orders.items():
            yield Candidate(
                f"preferred {level}, ranks {name}", partial(_placed, job, depth, 1, order)
            )
    if not job.levels:
        for name, order in job.orders.items():
            yield Candidate(f"ranks {name}", partial(_placed, job, 1, 1, order))
    for name, units in job.units.items():
        size = len(units[0])
        whole = all(len(unit) == size for unit in units)
        if not whole or not job.levels or size == 1:
            continue
        if sum(pod.capacity // size for pod in job.root.children) >= len(units):
            order = [block for unit in units for block in unit]
            yield Candidate(f"slices: {name}", partial(_placed, job, 1, size, order))


def _placed(job: Job, depth: int, slice_blocks: int, order: list[int]) -> list[Device]:
    return job.laid(best_fit(job, depth, slice_blocks), order)


def best_fit(job: Job, depth: int, slice_blocks: int = 1) -> Taken:
    """Nodes and how many blocks each takes, preferring domains `depth` levels below the root.

    With `slice_blocks` > 1 every slice of that many blocks stays in one outermost domain.
    """
    needed = len(job.blocks)
    fits = Fits(slice_blocks)
    chosen: Taken = []
    while depth > 0 and not chosen:
        domains = _at_depth(job.root, depth)
        if max((fits.units(d) for d in domains), default=0) * slice_blocks >= needed or depth == 1:
            chosen = fits.take(domains, needed)
        depth -= 1
    if not chosen:
        chosen = [(job.root, needed)]
    while chosen[0][0].children:
        if slice_blocks > 1:
            chosen = [part for d, count in chosen for part in Fits(1).take(d.children, count)]
        else:
            chosen = fits.take([child for d, _ in chosen for child in d.children], needed)
    return chosen


class Fits:
    """Taking domains from the largest down, the last one the tightest."""

    def __init__(self, slice_blocks: int) -> None:
        self.slice_blocks = slice_blocks

    def units(self, domain: Domain) -> int:
        """Whole slices that fit."""
        return domain.capacity // self.slice_blocks

    def take(self, domains: list[Domain], blocks: int) -> Taken:
        """Domains and their blocks; together they hold all."""
        left = blocks // self.slice_blocks
        ordered = sorted(domains, key=lambda d: (-self.units(d), d.capacity, d.path))
        taken: Taken = []
        for position, domain in enumerate(ordered):
            if self.units(domain) >= left:
                rest = [d for d in ordered[position:] if self.units(d) >= left]
                domain = min(rest, key=self.units)
                taken.append((domain, left * self.slice_blocks))
                return taken
            taken.append((domain, self.units(domain) * self.slice_blocks))
            left -= self.units(domain)
        raise ValueError(f"{left} slices of {self.slice_blocks} blocks do not fit")


def _at_depth(root: Domain, depth: int) -> list[Domain]:
    domains = [root]
    for _ in range(depth):
        domains = [child for domain in domains for child in domain.children]
    return domains
