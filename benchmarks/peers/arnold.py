"""The mixed-integer program of Arnold, solved with HiGHS through OR-Tools.

Source: He et al., "Efficient Pre-Training of LLMs via Topology-Aware Communication Alignment on
More Than 9600 GPUs", NeurIPS 2025 (arXiv 2509.15940). Communication groups are the units; the
program chooses how many nodes of each unit go to each outermost domain, minimising
alpha * domains used + beta * the largest number of domains that one unit spans.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from functools import partial

from ortools.math_opt.python import mathopt

from ..job import Device, Domain, Job
from . import Candidate

NAME = "Arnold MIP"
WEIGHTS = ((1.0, 0.1), (1.0, 1.0), (0.1, 1.0))
TIME_LIMIT_S = 2.0


def candidates(job: Job, seed: int, starts: int = 1) -> Iterator[Candidate]:
    """Each kind of communication group as units, with alpha or beta the larger or both equal."""
    units_by_name = job.units or {"blocks as given": _nodes_of(job)}
    for name, units in units_by_name.items():
        for alpha, beta in WEIGHTS:
            yield Candidate(
                f"{name}, alpha {alpha:g}, beta {beta:g}", partial(_placed, job, units, alpha, beta)
            )


def _placed(job: Job, units: list[list[int]], alpha: float, beta: float) -> list[Device]:
    return job.inside(_matched(job, units, solved(job, units, alpha, beta)))


def _nodes_of(job: Job) -> list[list[int]]:
    """Without communication groups: units as large as the largest node."""
    size = max(node.capacity for node in job.nodes)
    blocks = list(range(len(job.blocks)))
    return [blocks[i : i + size] for i in range(0, len(blocks), size)]


def solved(job: Job, units: list[list[int]], alpha: float, beta: float) -> list[list[int]]:
    """Blocks of each unit (rows) in each outermost domain (columns).

    When the time limit ends before any solution is found, units fill domains from the largest.
    """
    pods = job.root.children
    model = mathopt.Model()
    uses = [model.add_binary_variable() for _ in pods]
    spread = model.add_variable(lb=1, ub=len(pods))
    counts = []
    for unit in units:
        most = [min(len(unit), pod.capacity) for pod in pods]
        row = [model.add_integer_variable(lb=0, ub=count) for count in most]
        touches = [model.add_binary_variable() for _ in pods]
        model.add_linear_constraint(mathopt.fast_sum(row) == len(unit))
        model.add_linear_constraint(mathopt.fast_sum(touches) <= spread)
        for count, touched, bound in zip(row, touches, most, strict=True):
            model.add_linear_constraint(count <= bound * touched)
        counts.append(row)
    for column, (pod, used) in enumerate(zip(pods, uses, strict=True)):
        held = mathopt.fast_sum(row[column] for row in counts)
        model.add_linear_constraint(held <= pod.capacity * used)
    model.minimize(alpha * mathopt.fast_sum(uses) + beta * spread)
    limit = timedelta(seconds=TIME_LIMIT_S)
    found = mathopt.solve(
        model, mathopt.SolverType.HIGHS, params=mathopt.SolveParameters(time_limit=limit)
    )
    if not found.has_primal_feasible_solution():
        return _filled(units, pods)
    value = found.variable_values()
    return [[round(value[count]) for count in row] for row in counts]


def _filled(units: list[list[int]], pods: list[Domain]) -> list[list[int]]:
    room = [pod.capacity for pod in pods]
    order = sorted(range(len(pods)), key=lambda p: -room[p])
    table = []
    for unit in units:
        left, row = len(unit), [0] * len(pods)
        for pod in order:
            row[pod] = min(left, room[pod])
            room[pod] -= row[pod]
            left -= row[pod]
        table.append(row)
    return table


def _matched(job: Job, units: list[list[int]], table: list[list[int]]) -> list[Domain]:
    """A domain per block: within its unit's counts, next to the blocks it talks to most."""
    near: defaultdict[int, list[tuple[int, float]]] = defaultdict(list)
    for (here, there), weight in job.edges.items():
        near[here].append((there, weight))
        near[there].append((here, weight))
    pod_of: dict[int, int] = {}
    for unit, row in zip(units, table, strict=True):
        left = list(row)
        members = set(unit)
        wanting: list[tuple[float, int, int]] = []
        for block in unit:
            pull: defaultdict[int, float] = defaultdict(float)
            for other, weight in near[block]:
                if other not in members and other in pod_of:
                    pull[pod_of[other]] += weight
            wanting += [(-weight, block, pod) for pod, weight in pull.items()]
        for _, block, pod in sorted(wanting):
            if block not in pod_of and left[pod]:
                pod_of[block] = pod
                left[pod] -= 1
        rest = (pod for pod, count in enumerate(left) for _ in range(count))
        for block in unit:
            if block not in pod_of:
                pod_of[block] = next(rest)
    return [job.root.children[pod_of[block]] for block in range(len(job.blocks))]
