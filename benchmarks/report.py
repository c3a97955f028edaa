"""The page docs/benchmarks.md: the tables of a run, put into the text of page.md.in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from string import Template
from typing import Any

from .families import described
from .measure import SOLVER, Result
from .table import Cell, below_bound, cells, families, methods

TEMPLATE = Path(__file__).with_name("page.md.in")
INFINITE = "∞"
GROWTH = """## Growth with the cluster

A dense job on about 92 % of the devices, each size in a process of its own. Memory is the peak of
the process; what interpreter, cluster and graph take before the call stands beside it.

{table}
![Time and memory against devices](benchmarks/growth.svg)

"""


@dataclass(frozen=True)
class Run:
    """What was measured, and how it was asked for.

    missing: peers that are not installed, each with how to get it.
    """

    results: Sequence[Result]
    growth: Sequence[dict[str, Any]] = ()
    missing: dict[str, str] = field(default_factory=dict)
    time_limit_s: float = 1.0
    starts: int = 1
    command: str = "python -m benchmarks"


def page(run: Run) -> str:
    """The page as markdown."""
    results = run.results
    table = cells(results)
    seeds = sorted({result.seed for result in results})
    listed = f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"
    missing = [
        f"Not run here: {peer} is not installed ({how}).\n\n" for peer, how in run.missing.items()
    ]
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        command=f"`{run.command}`",
        missing="".join(missing),
        seed_count=listed,
        time_limit=f"{run.time_limit_s:g}",
        starts=_counted(run.starts, "random start"),
        ratios=_ratios(results, {key: cell.ratios for key, cell in table.items()}),
        over_least=_ratios(results, {key: cell.over_least for key, cell in table.items()}),
        failures=_broken_bounds(results) + _failures(results),
        families="\n".join(f"| {name} | {described(name)} |" for name in families(results)),
        verdicts=_verdicts(results, table),
        times=_times(results, table),
        growth=GROWTH.format(table=_growth(run.growth)) if run.growth else "",
    )


def _counted(count: int, thing: str) -> str:
    return f"one {thing}" if count == 1 else f"{count} {thing}s"


def _head(results: Sequence[Result], first: str) -> list[str]:
    names = families(results)
    return ["| " + " | ".join([first, *names]) + " |", "|---" * (len(names) + 1) + "|"]


def _ratios(results: Sequence[Result], ratios: dict[tuple[str, str], tuple[float, ...]]) -> str:
    """Mean and worst by method and family; bold where the mean is the best of its family."""
    rows = _head(results, "method")
    means = {key: number(fmean(found)) for key, found in ratios.items() if found}
    least = {
        family: number(min(fmean(f) for (_, name), f in ratios.items() if name == family and f))
        for family in families(results)
    }
    for method in methods(results):
        shown = []
        for family in families(results):
            found = ratios[method, family]
            if not found:
                shown.append("none valid")
                continue
            mean, worst = means[method, family], number(max(found))
            text = mean if mean == worst else f"{mean} ({worst})"
            best = mean == least[family] and mean != INFINITE
            shown.append(f"**{text}**" if best else text)
        rows.append(f"| {_name(method)} | " + " | ".join(shown) + " |")
    return "\n".join(rows) + "\n"


def _failures(results: Sequence[Result]) -> str:
    """Every instance for which a method had no valid placement."""
    failed = [r for r in results if not r.traffic_bytes]
    return "".join(
        f"No valid placement: {r.method} on {r.family}, seed {r.seed} ({r.problem}).\n\n"
        for r in failed
    )


def _broken_bounds(results: Sequence[Result]) -> str:
    """Placements below the bound that was called proven: faults of the solver, told first."""
    return "".join(
        f"**The bound is wrong**: {r.method} on {r.family}, seed {r.seed}, has {r.spine_bytes:.6g} "
        f"bytes where the bound says {r.bound_bytes:.6g} at least.\n\n"
        for r in below_bound(results)
    )


def number(value: float) -> str:
    """A ratio to two places, or to one when it is large."""
    if math.isinf(value):
        return INFINITE
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _verdicts(results: Sequence[Result], table: dict[tuple[str, str], Cell]) -> str:
    rows = _head(results, "`place()` against")
    for method in methods(results):
        if method != SOLVER:
            found = [table[method, family] for family in families(results)]
            shown = [f"{cell.better} / {cell.equal} / {cell.worse}" for cell in found]
            rows.append(f"| {method} | " + " | ".join(shown) + " |")
    return "\n".join(rows) + "\n"


def _times(results: Sequence[Result], table: dict[tuple[str, str], Cell]) -> str:
    rows = _head(results, "CPU time")
    for method in methods(results):
        shown = []
        for family in families(results):
            own, base = table[method, family].cpu_seconds, table[SOLVER, family].cpu_seconds
            shown.append(f"{own:.2f} s" if method == SOLVER else f"{own / base:.2g}")
        rows.append(f"| {_name(method)} | " + " | ".join(shown) + " |")
    walls = [f"{table[SOLVER, family].seconds:.2f} s" for family in families(results)]
    rows.append(f"| wall time of {_name(SOLVER)} in this run | " + " | ".join(walls) + " |")
    return "\n".join(rows) + "\n"


def _growth(growth: Sequence[dict[str, Any]]) -> str:
    rows = [
        "| devices | ranks | CPU | wall | peak memory | before the call | over the bound |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in growth:
        over = "-" if row["ratio"] is None else number(row["ratio"])
        rows.append(
            f"| {row['devices']:,} | {row['ranks']:,} "
            f"| {row['cpu_seconds']:.2f} s | {row['seconds']:.2f} s "
            f"| {row['peak_bytes'] / 1e9:.2f} GB | {row['input_bytes'] / 1e9:.2f} GB | {over} |"
        )
    return "\n".join(rows) + "\n"


def _name(method: str) -> str:
    return f"`{method}`" if method == SOLVER else method
