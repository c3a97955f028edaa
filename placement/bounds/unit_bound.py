"""A lower bound for jobs whose smallest sets hold together less than firmly: by single ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..jobs.gather import Gathered
from ..jobs.index import Demand, Fabric
from ..jobs.units import unit_graph
from ..spread.split_counts import split_counts
from .chain_bound import bound_by_atoms


def unit_bound(
    fabric: Fabric, demand: Demand, gathered: Gathered, cost: float, work: float
) -> float:
    """Bytes across the outermost boundary that every placement of a job has; 0 where not known.

    gathered: the job in atoms, and in blocks that make chains. cost: bytes of a placement that is
    known. What splitting atoms costs is told by their grip only, which can be far too little; here
    each rank is an atom of its own, and the sets that were atoms are parts of blocks.
    """
    if gathered.chains is None or gathered.atom == 1:
        return 0.0
    graph = unit_graph(demand)
    alone = replace(
        gathered,
        atom_of=np.arange(graph.units),
        atom=1,
        atoms=graph,
        block_of=gathered.block_of[gathered.atom_of],
        block=gathered.atom * gathered.block,
        atom_grip=1.0,
    )
    split = split_counts(alone, gathered.chains)
    if split is None:
        return 0.0
    free = np.bincount(fabric.slot_domain[-1])
    return bound_by_atoms(alone, split, free[free > 0], cost, work)
