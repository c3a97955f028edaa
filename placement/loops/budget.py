"""How much work one call of the solver may do."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


class Status(IntEnum):
    """How a run of CP-SAT ended, by its own numbers."""

    UNKNOWN = 0
    """Out of work before any solution."""
    INVALID = 1
    """The model is wrong."""
    FEASIBLE = 2
    """With a solution that may not be the best."""
    INFEASIBLE = 3
    """Proved to have no solution."""
    OPTIMAL = 4
    """With a solution that is proved best."""


def new_model() -> cp_model.CpModel:
    """An empty CP-SAT model."""
    # Imported here because it takes half a second that reading a file does not need.
    from ortools.sat.python import cp_model

    return cp_model.CpModel()


def proved_least(solver: cp_model.CpSolver, status: Status) -> float:
    """What CP-SAT proved that no solution is below; minus infinity where it proved nothing.

    Stopped before it began, it reports 0, which is no bound where an objective can be negative.
    """
    bound = solver.best_objective_bound
    return -math.inf if status is Status.UNKNOWN and bound == 0.0 else bound


PATIENCE_S = 10.0
"""Seconds above four times the limit that a busy machine may take before the clock decides."""


CP_SAT_PACE = 1.3
"""Units of work that one of CP-SAT's deterministic seconds takes, its presolve included."""


FULL_RANKS = 16_384
"""Ranks up to which a limit of a second is a unit of work; beyond, work grows with their root."""


class Budget:
    """Work that is counted, not timed, so that equal calls give equal placements.

    One unit of work is about a second of one core. CP-SAT counts its own, in seconds that last a
    little longer; loops of ours charge what they are about to do. CP-SAT's clock is only a safety
    stop, for machines so slow or so busy that the counted work takes more than four times its time
    and `PATIENCE_S`.
    """

    def __init__(self, time_limit_s: float, ranks: int = 0) -> None:
        """A limit in seconds for a job of up to `FULL_RANKS` ranks; one of more gets more."""
        self.time_limit_s = time_limit_s * math.sqrt(max(1.0, ranks / FULL_RANKS))
        self._work_left = self.time_limit_s
        self._wall_left_s = 4 * self.time_limit_s + PATIENCE_S

    @property
    def left(self) -> float:
        """Units of work left."""
        return max(0.0, self._work_left)

    def spent(self) -> bool:
        """Whether all the work has been done."""
        return self._work_left <= 0.0

    def charge(self, work: float) -> None:
        """Count work that is done elsewhere."""
        self._work_left -= work
        self._wall_left_s -= work

    def solve(
        self, model: cp_model.CpModel, share: float, seed: int = 0, workers: int = 1
    ) -> tuple[cp_model.CpSolver, Status]:
        """Run CP-SAT for at most `share` of the whole limit or what is left, and count it."""
        from ortools.sat.python import cp_model

        solver = cp_model.CpSolver()
        solver.parameters.num_workers = workers
        solver.parameters.interleave_search = workers > 1
        solver.parameters.random_seed = seed
        allowed = min(self.left, self.time_limit_s * share)
        solver.parameters.max_deterministic_time = max(1e-3, allowed / CP_SAT_PACE)
        solver.parameters.max_time_in_seconds = max(0.05, self._wall_left_s)
        status = solver.solve(model)
        self._work_left -= CP_SAT_PACE * solver.response_proto.deterministic_time
        self._wall_left_s -= solver.wall_time
        return solver, Status(int(status))
