"""Results as numbers to show: ratios to the bound, verdicts against the solver, times."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from .measure import SOLVER, Result

EQUAL_WITHIN = 1e-3
ROUNDING = 1e-9


@dataclass(frozen=True)
class Cell:
    """One method on one family, over its seeds.

    ratios: cross-spine bytes over the bound by seed; 1 when both are 0, inf over a bound of 0.
    over_least: the same over the least that any method found.
    better, equal, worse: instances where the solver's placement is better than, as good as or
        worse than this method's, spine first and then inwards, within 0.1 %.
    seconds, cpu_seconds: median wall and CPU time.
    failed: instances without a valid placement.
    """

    ratios: tuple[float, ...]
    over_least: tuple[float, ...]
    better: int
    equal: int
    worse: int
    seconds: float
    cpu_seconds: float
    failed: int

    @property
    def mean_ratio(self) -> float:
        """Mean of the ratios to the bound; nan when there is none."""
        return fmean(self.ratios) if self.ratios else math.nan

    @property
    def mean_over_least(self) -> float:
        """Mean of the ratios to the least found; nan when there is none."""
        return fmean(self.over_least) if self.over_least else math.nan


def cells(results: Sequence[Result]) -> dict[tuple[str, str], Cell]:
    """Cell by (method, family)."""
    solver = {(r.family, r.seed): r for r in results if r.method == SOLVER}
    least: dict[tuple[str, int], float] = {}
    for result in results:
        if result.traffic_bytes:
            key = (result.family, result.seed)
            least[key] = min(least.get(key, math.inf), result.spine_bytes)
    grouped: defaultdict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        grouped[result.method, result.family].append(result)
    return {key: _cell(rows, solver, least) for key, rows in grouped.items()}


def _cell(
    rows: list[Result],
    solver: dict[tuple[str, int], Result],
    least: dict[tuple[str, int], float],
) -> Cell:
    valid = [row for row in rows if row.traffic_bytes]
    signs = [compared(solver[row.family, row.seed], row) for row in valid]
    return Cell(
        ratios=tuple(ratio(row.spine_bytes, row.bound_bytes) for row in valid),
        over_least=tuple(ratio(row.spine_bytes, least[row.family, row.seed]) for row in valid),
        better=signs.count(-1),
        equal=signs.count(0),
        worse=signs.count(1),
        seconds=median(row.seconds for row in valid) if valid else math.nan,
        cpu_seconds=median(row.cpu_seconds for row in valid) if valid else math.nan,
        failed=len(rows) - len(valid),
    )


def ratio(spine_bytes: float, bound_bytes: float) -> float:
    """Bytes over the bound; 1 when both are 0, inf over a bound of 0."""
    if bound_bytes:
        return spine_bytes / bound_bytes
    return math.inf if spine_bytes else 1.0


def compared(first: Result, second: Result) -> int:
    """-1 when the first has less traffic, spine first and then inwards; 1 when more; 0 if equal."""
    pairs = zip(
        reversed(first.traffic_bytes.values()), reversed(second.traffic_bytes.values()), strict=True
    )
    for here, there in pairs:
        if abs(here - there) > EQUAL_WITHIN * max(here, there):
            return -1 if here < there else 1
    return 0


def below_bound(results: Iterable[Result]) -> list[Result]:
    """Valid placements with fewer cross-spine bytes than the bound, which no bound allows."""
    return [
        r for r in results if r.traffic_bytes and r.spine_bytes < r.bound_bytes * (1 - ROUNDING)
    ]


def methods(results: Iterable[Result]) -> list[str]:
    """Methods, the solver first, the others in the order they ran."""
    return list(dict.fromkeys(r.method for r in results))


def families(results: Iterable[Result]) -> list[str]:
    """Families in the order they ran."""
    return list(dict.fromkeys(r.family for r in results))
