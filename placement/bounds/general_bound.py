"""What a job must cost at the spine at least, whatever it looks like."""

from __future__ import annotations

import numpy as np

from ..jobs.gather import Gathered
from ..jobs.index import Fabric
from ..loops.budget import Budget
from .spectral_bound import spectral_bound

_SHARE = 0.25
"""Part of the whole limit that the bound may take at most."""


def general_bound(
    fabric: Fabric, gathered: Gathered, known: float, budget: Budget, seed: int
) -> float:
    """Bytes across the outermost boundary that no placement goes below; 0 where none is known.

    known: bytes of some placement. Atoms count as whole in the bound; a placement that splits some
    of them saves at most as their grip says (see `gather_heaviest`).
    """
    free = np.bincount(fabric.slot_domain[-1])
    rooms = free // gathered.atom
    if rooms.sum() < gathered.atoms.units:
        # Split atoms put back whole need a place; allow them one wherever a part of one fits.
        rooms = -(-free // gathered.atom)
    work = min(budget.left, budget.time_limit_s * _SHARE)
    grip = min(1.0, gathered.atom_grip)
    found, done = spectral_bound(gathered.atoms, rooms, known, work, seed)
    budget.charge(done)
    return found * grip
