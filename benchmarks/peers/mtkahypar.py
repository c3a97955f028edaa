"""Mt-KaHyPar: hypergraph partitioning, domain by domain from the outermost tier inwards.

Source: Gottesbueren, Heuer, Maas, Sanders, Schlag: github.com/kahypar/mt-kahypar, on PyPI.
Every ring is one hyperedge and every pair an edge. KM1 is the sum of weight * (parts - 1), SOED
that of weight * parts over what is cut, which is what a ring costs. The room of each domain is the
individual weight limit of its part.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from typing import Any

from ..job import Device, Domain, Job
from . import Candidate, Unavailable
from .kueue import Fits

NAME = "Mt-KaHyPar"
OBJECTIVES = ("KM1", "SOED")
PRESETS = ("DEFAULT", "HIGHEST_QUALITY")
LARGEST_WEIGHT = 100_000


def candidates(job: Job, seed: int, starts: int = 1) -> Iterator[Candidate]:
    """Two objectives and presets, over all domains with room and the fewest that hold the job."""
    library = _library()
    fewest = len(Fits(1).take(job.root.children, len(job.blocks)))
    subsets = [True] if fewest == len(job.root.children) else [True, False]
    for fewest_domains in subsets:
        for objective in OBJECTIVES:
            for preset in PRESETS:
                among = "fewest domains" if fewest_domains else "all domains"
                for start in range(starts):
                    run = _Run(library, job, objective, preset, fewest_domains, seed + start)
                    yield Candidate(f"{objective}, {preset}, {among}", run.place)


@cache
def _library() -> Any:
    try:
        import mtkahypar
    except ImportError as error:
        raise Unavailable("pip install -r requirements-bench.lock") from error
    return mtkahypar, mtkahypar.initialize(len(os.sched_getaffinity(0)))


class _Run:
    def __init__(
        self, library: Any, job: Job, objective: str, preset: str, fewest: bool, seed: int
    ) -> None:
        self._library, self._initializer = library
        self._job = job
        self._objective = objective
        self._preset = preset
        self._fewest = fewest
        self._seed = seed

    def place(self) -> list[Device]:
        """Devices by rank. Raises ValueError when a part came out larger than its domain."""
        node_of = [0] * len(self._job.blocks)
        self._library.set_seed(self._seed)
        self._split(self._job.root, list(range(len(node_of))), node_of)
        return self._job.devices(node_of)

    def _split(self, domain: Domain, blocks: list[int], node_of: list[int]) -> None:
        """Blocks of one domain onto its nodes."""
        children = domain.children
        if not children:
            for block in blocks:
                node_of[block] = domain.node
        elif all(not child.children and child.capacity == 1 for child in children):
            for block, child in zip(blocks, children, strict=False):
                node_of[block] = child.node
        else:
            if self._fewest:
                children = [child for child, _ in Fits(1).take(children, len(blocks))]
            for child, inside in zip(children, self._parts(children, blocks), strict=True):
                if inside:
                    self._split(child, inside, node_of)

    def _parts(self, domains: list[Domain], blocks: list[int]) -> list[list[int]]:
        if len(domains) == 1 or len(blocks) == 1:
            return [blocks, *([] for _ in domains[1:])]
        context = self._initializer.context_from_preset(
            getattr(self._library.PresetType, self._preset)
        )
        context.logging = False
        context.set_partitioning_parameters(
            len(domains), 0.0, getattr(self._library.Objective, self._objective)
        )
        context.set_individual_target_block_weights([domain.capacity for domain in domains])
        pins, weights = self._nets(blocks)
        graph = self._initializer.create_hypergraph(
            context, len(blocks), len(pins), pins, [1] * len(blocks), weights
        )
        parts: list[list[int]] = [[] for _ in domains]
        for block, part in zip(blocks, graph.partition(context).get_partition(), strict=True):
            parts[part].append(block)
        for part, domain in zip(parts, domains, strict=True):
            if len(part) > domain.capacity:
                raise ValueError(f"{len(part)} in {domain.path}, which holds {domain.capacity}")
        return parts

    def _nets(self, blocks: list[int]) -> tuple[list[list[int]], list[int]]:
        number = {block: index for index, block in enumerate(blocks)}
        pins: list[list[int]] = []
        sizes: list[float] = []
        for net in self._job.nets:
            inside = [number[pin] for pin in net.pins if pin in number]
            if len(inside) > 1:
                pins.append(inside)
                # SOED counts both sides of a cut; for a pair that is twice its bytes.
                halved = self._objective == "SOED" and not net.ring
                sizes.append(net.weight / 2 if halved else net.weight)
        heaviest = max(sizes, default=1.0)
        return pins, [max(1, round(LARGEST_WEIGHT * size / heaviest)) for size in sizes]
