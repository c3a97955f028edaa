"""The tables of docs/cost-model.md, in Markdown, and writing them there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from railweave.placement.cost import CONSTANTS, Estimator

from . import errors
from .measured import Exchange, Step
from .parameters import COLLECTIVES, STEPS, predicted_exchanges, predicted_steps
from .pictures import NAMES

ACCELERATORS = {
    "vtrain_single": "A100",
    "vtrain_multi": "A100",
    "megatron": "A100",
    "sc21_zero3": "A100",
    "gb200": "GB200",
}
COLLECTIVE_FAMILIES = (
    ("nccl-a100", "all-reduce, 2 to 8 A100"),
    ("nccl-h100", "all-reduce, 8 H100"),
    ("nccl-points", "single points, 8 to 1,984 devices"),
)
MIB, GIB = 2**20, 2**30
PAGE = Path(__file__).resolve().parents[2] / "docs" / "cost-model.md"


def families(steps: Sequence[Step]) -> str:
    """Errors of step times by family."""
    lines = [
        "| family | on | n | mean error | median | bias |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for family, e in errors.by_family(steps, predicted_steps(steps, CONSTANTS)).items():
        lines.append(
            f"| {NAMES[family]} | {ACCELERATORS.get(family, 'H100')} | {e.rows} "
            f"| {e.mean:.1%} | {e.median:.1%} | {e.bias:+.1%} |"
        )
    return "\n".join(lines)


def sweeps(steps: Sequence[Step]) -> str:
    """How splits of one model on as many devices with one batch are ranked."""
    predicted = predicted_steps(steps, CONSTANTS)
    lines = [
        "| sweep | sets of splits | rank correlation | best one found "
        "| regret | worst | of all time |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for family in ("vtrain_multi", "vtrain_single"):
        s = errors.sweep(steps, predicted, family)
        lines.append(
            f"| {NAMES[family]} | {s.groups} | {s.rank_correlation:.2f} | {s.exact} "
            f"| {s.regret:.1%} | {s.worst_regret:.1%} | {s.regret_of_time:.1%} |"
        )
    return "\n".join(lines)


def collectives(rows: Sequence[Exchange]) -> str:
    """Errors of collectives."""
    ratio = predicted_exchanges(rows, CONSTANTS) / [row.seconds for row in rows]
    lines = ["| collectives | n | error |", "|---|---:|---|"]
    for family, name in COLLECTIVE_FAMILIES:
        here = np.array([row.family == family for row in rows])
        large = here & np.array([row.size >= MIB for row in rows])
        off = np.abs(ratio[large] - 1).mean()
        lines.append(f"| {name}, from 1 MiB | {large.sum()} | {off:.1%} on average |")
        small = here & ~large
        if small.any():
            worst = np.exp(np.abs(np.log(ratio[small]))).max()
            lines.append(f"| {name}, smaller | {small.sum()} | at most {worst:.2f} times |")
    return "\n".join(lines)


def memory(steps: Sequence[Step]) -> str:
    """Measured and predicted peaks."""
    lines = ["| step | measured, GiB | predicted, GiB | error |", "|---|---:|---:|---:|"]
    for step in steps:
        if step.memory_bytes is not None:
            found = Estimator(step.cluster)(step.workload).memory_bytes
            lines.append(
                f"| {step.label}, sequence {step.workload.sequence} "
                f"| {step.memory_bytes / GIB:.1f} | {found / GIB:.1f} "
                f"| {found / step.memory_bytes - 1:+.1%} |"
            )
    return "\n".join(lines)


def constants() -> str:
    """The fitted constants."""
    lines = ["| constant | value | bounds |", "|---|---:|---|"]
    for parameter in (*COLLECTIVES, *STEPS):
        program, _, name = parameter.name.rpartition(".")
        owner = CONSTANTS.software[program] if program else CONSTANTS  # type: ignore[index]
        low, high = parameter.low, parameter.high
        lines.append(f"| `{parameter.name}` | {getattr(owner, name):.3g} | {low:g} to {high:g} |")
    return "\n".join(lines)


def write(steps: Sequence[Step], rows: Sequence[Exchange]) -> None:
    """Put the tables of the model as it is into the page, each where its name stands."""
    tables = {
        "families": families(steps),
        "sweeps": sweeps(steps),
        "collectives": collectives(rows),
        "memory": memory(steps),
        "constants": constants(),
    }
    text = PAGE.read_text(encoding="utf-8")
    for name, table in tables.items():
        text = re.sub(
            rf"<!-- {name} -->\n.*?<!-- end -->",
            f"<!-- {name} -->\n{table}\n<!-- end -->",
            text,
            flags=re.DOTALL,
        )
    PAGE.write_text(text, encoding="utf-8")
