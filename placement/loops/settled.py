"""One model by CP-SAT in two ways side by side, of which the better answer counts."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .budget import CP_SAT_PACE, PATIENCE_S, Status, proved_least

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

_ANEW = (0.2, 0.2, 0.6)
"""Parts of the work of runs with cuts, each begun anew in another order. Some orders end at once
and some never, so that several short runs end sooner than one long run, mostly."""
_AT_ONCE = (1.0,)
"""Of runs without cuts, which differ little and end where some with cuts do not, and of those that
begin by probing, which takes its time."""
_PROBING_LEVEL = 2
"""Of runs that are to probe, as CP-SAT does by itself."""


@dataclass(frozen=True)
class Settled:
    """How a model ended, what no solution of it is below, and the run that knows the best one."""

    status: Status
    bound: float
    solver: cp_model.CpSolver
    work: float


@dataclass
class _Way:
    """Runs of one kind one after another; `done` is the work of those that ended."""

    shares: tuple[float, ...]
    cut_level: int
    probing_level: int
    stopped: bool = False
    runs: list[tuple[cp_model.CpSolver, Status]] = field(default_factory=list)
    done: float = 0.0

    def run(self, model: cp_model.CpModel, work: float) -> Status:
        """How the last run ended, which is the first with a proof if there is any."""
        for number, share in enumerate(self.shares):
            solver = self._solver(number, share * work)
            self.runs.append((solver, Status.UNKNOWN))
            if self.stopped:
                break
            status = Status(int(solver.solve(model)))
            self.runs[-1] = (solver, status)
            self.done += CP_SAT_PACE * solver.response_proto.deterministic_time
            if status in (Status.OPTIMAL, Status.INFEASIBLE):
                break
        return self.runs[-1][1]

    def stop(self) -> None:
        """End the run that is under way, and begin no other."""
        self.stopped = True
        if self.runs:
            self.runs[-1][0].stop_search()

    def _solver(self, seed: int, work: float) -> cp_model.CpSolver:
        from ortools.sat.python import cp_model

        solver = cp_model.CpSolver()
        parameters = solver.parameters
        parameters.num_workers = 1
        parameters.cp_model_probing_level = self.probing_level
        parameters.cut_level = self.cut_level
        parameters.random_seed = seed
        parameters.permute_variable_randomly = seed > 0
        parameters.permute_presolve_constraint_order = seed > 0
        parameters.max_deterministic_time = max(1e-3, work / CP_SAT_PACE)
        parameters.max_time_in_seconds = 4 * work + PATIENCE_S
        return solver


def settled(model: cp_model.CpModel, work: float, probing: bool = False) -> Settled:
    """Minimise with about so much work in each of two threads.

    probing: whether runs with cuts begin by probing, which costs much of what little work there is.
    Which thread ends first on the clock makes no difference: the second counts where it proves that
    there is no solution, or where the first ends without a proof.
    """
    probes = _PROBING_LEVEL if probing else 0
    first, second = _Way(_AT_ONCE if probing else _ANEW, 1, probes), _Way(_AT_ONCE, 0, 0)

    def run(way: _Way, other: _Way) -> Status:
        status = way.run(model, work)
        if status is Status.INFEASIBLE or (way is first and status is Status.OPTIMAL):
            other.stop()
        return status

    with ThreadPoolExecutor(2) as pool:
        statuses = list(pool.map(run, (first, second), (second, first)))
    runs = first.runs + second.runs
    if Status.INFEASIBLE in statuses:
        return Settled(Status.INFEASIBLE, math.inf, runs[0][0], work)
    done = work
    if statuses[0] is Status.OPTIMAL:
        runs, done = first.runs[-1:], first.done
    bound = max(proved_least(solver, status) for solver, status in runs)
    found = [run for run in runs if run[1] in (Status.OPTIMAL, Status.FEASIBLE)]
    if not found:
        return Settled(Status.UNKNOWN, bound, runs[0][0], done)
    solver, status = min(found, key=lambda run: run[0].objective_value)
    proof = Status.OPTIMAL if Status.OPTIMAL in statuses else status
    return Settled(proof, bound, solver, done)
