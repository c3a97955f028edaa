"""The constants that are fitted: where each starts, its bounds, and how they make a set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from railweave.placement.cost import CONSTANTS, Constants, Estimator
from railweave.placement.cost.communication import Prices
from railweave.placement.cost.software import software_name

from .least_squares import Floats, fit
from .measured import Exchange, Step


class Parameter(NamedTuple):
    """A constant by its name (`program.name` for one of a program), its start and its bounds.

    Bounds are what a device or a program can physically do; the fit is drawn to the start a little,
    so that what the rows do not tell stays there.
    """

    name: str
    start: float
    low: float
    high: float


COLLECTIVES = (
    Parameter("link_share", 0.8, 0.5, 1.0),
    Parameter("switch_share", 0.6, 0.4, 0.8),
    Parameter("segment_s", 5e-6, 1e-7, 1e-4),
    Parameter("network_share", 0.9, 0.4, 1.0),
    Parameter("network_segment_s", 1e-5, 1e-6, 1e-4),
    Parameter("megatron-2021.collective_launch_s", 20e-6, 1e-6, 60e-6),
    Parameter("megatron-2021.collective_launch_s_per_rank", 9e-6, 0.0, 30e-6),
    Parameter("megatron.collective_launch_s", 13e-6, 1e-6, 30e-6),
)
STEPS = (
    Parameter("matmul_share", 0.95, 0.6, 1.0),
    Parameter("matmul_balance", 600.0, 150.0, 3000.0),
    Parameter("matmul_balance_power", 1.0, 0.5, 3.0),
    Parameter("matmul_area", 1e6, 1e4, 1e7),
    Parameter("matmul_depth", 100.0, 0.0, 2000.0),
    Parameter("scan_share", 0.02, 0.003, 0.3),
    Parameter("memory_share", 0.8, 0.5, 0.95),
    Parameter("megatron-2021.host_s_per_kernel", 38e-6, 10e-6, 80e-6),
    Parameter("megatron-2021.tensor_overlap", 0.2, 0.0, 0.9),
    Parameter("megatron-2021.pipeline_overlap", 0.5, 0.0, 1.0),
    Parameter("megatron-2021.gather_overlap", 0.8, 0.0, 1.0),
    Parameter("megatron-2021.gather_share", 0.8, 0.2, 1.0),
    Parameter("megatron-2021.logit_traffic_bytes", 40.0, 20.0, 80.0),
    Parameter("megatron-2021.optimizer_bytes", 36.0, 20.0, 60.0),
    Parameter("megatron.attention_share", 0.55, 0.4, 0.65),
    Parameter("megatron.tensor_overlap", 0.6, 0.0, 1.0),
    Parameter("megatron.context_overlap", 0.7, 0.0, 1.0),
    Parameter("megatron.pipeline_overlap", 0.6, 0.0, 1.0),
    Parameter("megatron.gradient_overlap", 0.6, 0.0, 1.0),
    Parameter("fsdp.element_traffic", 2.0, 1.0, 4.0),
)
FAMILY_WEIGHTS = {
    "vtrain_single": 1.0,
    "vtrain_multi": 1.5,
    "megatron": 1.5,
    "sc21_zero3": 0.5,
    "dgxc": 1.5,
    "torchtitan": 1.0,
    "megatron_core": 0.4,
    "bridge": 0.7,
    "bridge_sparse": 0.3,
}
"""How much a family counts, whatever its number of rows; least where sources leave most unsaid.
Families that are not here are not fitted."""
PULL = 0.02


def constants_with(values: Mapping[str, float], base: Constants = CONSTANTS) -> Constants:
    """The constants with some of them replaced."""
    software = dict(base.software)
    own: dict[str, float] = {}
    for name, value in values.items():
        program, _, field = name.rpartition(".")
        if not program:
            own[name] = float(value)
            continue
        for known in software:
            if known == program:
                software[known] = replace(software[known], **{field: float(value)})  # type: ignore[arg-type]
    return replace(base, software=software, **own)  # type: ignore[arg-type]


def predicted_steps(steps: Sequence[Step], constants: Constants) -> Floats:
    """Seconds of each step."""
    estimators: dict[int, Estimator] = {}
    found = []
    for step in steps:
        estimator = estimators.get(id(step.cluster))
        if estimator is None:
            estimator = estimators[id(step.cluster)] = Estimator(step.cluster, constants)
        found.append(estimator(step.workload).step_s)
    return np.array(found)


def predicted_exchanges(rows: Sequence[Exchange], constants: Constants) -> Floats:
    """Seconds of each collective, with the launch by the hosts of its time."""
    found = []
    for row in rows:
        program = constants.software["megatron-2021" if row.old else "megatron"]
        found.append(Prices(row.links, program, constants).seconds(row.op, row.size, row.span))
    return np.array(found)


def fit_collectives(rows: Sequence[Exchange], base: Constants = CONSTANTS) -> dict[str, float]:
    """Constants of collectives from the NCCL tables and points; each family has its weight."""
    seconds = np.array([row.seconds for row in rows])
    counts = {row.family: sum(one.family == row.family for one in rows) for row in rows}
    weights = np.array([(len(rows) / 3 / counts[row.family]) ** 0.5 for row in rows])

    def residuals(values: Floats) -> Floats:
        constants = constants_with(_named(COLLECTIVES, values), base)
        return weights * np.log(predicted_exchanges(rows, constants) / seconds)

    return _named(COLLECTIVES, _fit(residuals, COLLECTIVES, odd=0.1, rounds=30))


def fit_steps(
    steps: Sequence[Step], base: Constants = CONSTANTS, rounds: int = 12
) -> dict[str, float]:
    """Constants of steps from the tables of step times; every family has its weight."""
    steps = [step for step in steps if step.family in FAMILY_WEIGHTS]
    counts = {family: sum(s.family == family for s in steps) for family in FAMILY_WEIGHTS}
    seconds = np.array([step.step_s for step in steps])
    weights = np.array([FAMILY_WEIGHTS[s.family] / counts[s.family] ** 0.5 for s in steps])
    weights *= len(steps) ** 0.5 / 3
    start = np.array([p.start for p in STEPS])
    room = np.array([p.high - p.low for p in STEPS])
    pull = PULL * len(steps) ** 0.5

    programs = _programs(steps)
    known: dict[tuple[str, tuple[float, ...]], Floats] = {}

    def residuals(values: Floats) -> Floats:
        named = _named(STEPS, values)
        constants = constants_with(named, base)
        predicted = np.empty(len(steps))
        for program, rows in programs.items():
            # Most differences concern one program; the rows of the others stay as they were.
            own = tuple(v for name, v in named.items() if name.rpartition(".")[0] in ("", program))
            if (program, own) not in known:
                chosen = [steps[row] for row in rows]
                known[program, own] = predicted_steps(chosen, constants)
            predicted[rows] = known[program, own]
        off = weights * np.log(predicted / seconds)
        return np.concatenate([off, pull * (values - start) / room])

    return _named(STEPS, _fit(residuals, STEPS, odd=0.5, rounds=rounds))


def _programs(steps: Sequence[Step]) -> dict[str, list[int]]:
    """Rows by the training program that they are taken to be of."""
    found: dict[str, list[int]] = {}
    for row, step in enumerate(steps):
        kinds = {node.accelerator for node in step.cluster.nodes}
        found.setdefault(software_name(step.workload, kinds), []).append(row)
    return found


def _fit(residuals, parameters: Sequence[Parameter], odd: float, rounds: int) -> Floats:  # type: ignore[no-untyped-def]
    start, low, high = (np.array([p[i] for p in parameters]) for i in (1, 2, 3))
    return fit(residuals, start, low, high, rounds=rounds, odd=odd)


def _named(parameters: Sequence[Parameter], values: Floats) -> dict[str, float]:
    return {p.name: float(v) for p, v in zip(parameters, values, strict=True)}
