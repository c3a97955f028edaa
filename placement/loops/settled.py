"""One model by CP-SAT in two ways side by side, of which the better answer counts."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .budget import CP_SAT_PACE, PATIENCE_S, Status, proved_least

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

_CUT_LEVELS = (1, 0)
"""Of each way. Whether cuts help differs widely from model to model."""
_PROBING_LEVEL = 2
"""Of the first way, where it is to probe, as CP-SAT does by itself."""


@dataclass(frozen=True)
class Settled:
    """How a model ended, what no solution of it is below, and the run that knows the best one."""

    status: Status
    bound: float
    solver: cp_model.CpSolver
    work: float


def settled(model: cp_model.CpModel, work: float, probing: bool = False) -> Settled:
    """Minimise with about so much work in each of two threads.

    probing: whether the first begins by probing, which costs much of what little work there is.
    Which of them ends first on the clock makes no difference: the second counts where it proves
    that there is no solution, or where the first ends without a proof.
    """
    probes = (_PROBING_LEVEL if probing else 0, 0)
    solvers = [_solver(*way, work) for way in zip(_CUT_LEVELS, probes, strict=True)]

    def run(way: int) -> Status:
        status = Status(int(solvers[way].solve(model)))
        if status is Status.INFEASIBLE or (way == 0 and status is Status.OPTIMAL):
            solvers[1 - way].stop_search()
        return status

    with ThreadPoolExecutor(len(solvers)) as pool:
        statuses = list(pool.map(run, range(len(solvers))))
    if Status.INFEASIBLE in statuses:
        return Settled(Status.INFEASIBLE, math.inf, solvers[0], work)
    ways = list(zip(solvers, statuses, strict=True))
    done = work
    if statuses[0] is Status.OPTIMAL:
        ways, done = ways[:1], CP_SAT_PACE * solvers[0].response_proto.deterministic_time
    bound = max(proved_least(solver, status) for solver, status in ways)
    found = [way for way in ways if way[1] in (Status.OPTIMAL, Status.FEASIBLE)]
    if not found:
        return Settled(Status.UNKNOWN, bound, solvers[0], done)
    solver, status = min(found, key=lambda way: way[0].objective_value)
    return Settled(status, bound, solver, done)


def _solver(cut_level: int, probing_level: int, work: float) -> cp_model.CpSolver:
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.cp_model_probing_level = probing_level
    solver.parameters.cut_level = cut_level
    solver.parameters.max_deterministic_time = max(1e-3, work / CP_SAT_PACE)
    solver.parameters.max_time_in_seconds = 4 * work + PATIENCE_S
    return solver
