"""How far predictions are off: by family, with ranks and regret where splits were swept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .least_squares import Floats
from .measured import Step


class Error(NamedTuple):
    """Relative errors of a family: mean and median of their size, and their mean with sign."""

    rows: int
    mean: float
    median: float
    bias: float


class Sweep(NamedTuple):
    """How well splits of one model are ranked.

    groups: sets of rows that differ in the split alone. rank_correlation: Spearman's, mean over the
    groups weighted by rows. regret: how much longer the split takes that is predicted best than
    the best measured, mean and worst. exact: sets where these are the same. regret_of_time: of all
    sets together, over the time of the best.
    """

    groups: int
    rank_correlation: float
    regret: float
    worst_regret: float
    exact: int
    regret_of_time: float


def by_family(steps: Sequence[Step], predicted: Floats) -> dict[str, Error]:
    """Errors of step times by family, in the order of the rows."""
    off: defaultdict[str, list[float]] = defaultdict(list)
    for step, seconds in zip(steps, predicted, strict=True):
        off[step.family].append(float(seconds) / step.step_s - 1)
    return {family: error_of(np.array(values)) for family, values in off.items()}


def error_of(off: Floats) -> Error:
    """Errors from relative differences."""
    size = np.abs(off)
    return Error(len(off), float(size.mean()), float(np.median(size)), float(off.mean()))


def sweep(steps: Sequence[Step], predicted: Floats, family: str) -> Sweep:
    """Ranking of the splits of each model, device count and batch of a family."""
    groups: defaultdict[tuple[int, int, int], list[tuple[float, float]]] = defaultdict(list)
    for step, seconds in zip(steps, predicted, strict=True):
        if step.family == family:
            work = step.workload
            key = (id(work.model), work.parallelism.world_size, work.global_batch)
            groups[key].append((float(seconds), step.step_s))
    correlations, regrets, sizes = [], [], []
    chosen_s = best_s = 0.0
    for rows in groups.values():
        if len(rows) < 3:
            continue
        guess, truth = np.array(rows).T
        correlations.append(float(np.corrcoef(_ranks(guess), _ranks(truth))[0, 1]))
        regrets.append(float(truth[guess.argmin()] / truth.min() - 1))
        sizes.append(len(rows))
        chosen_s, best_s = chosen_s + float(truth[guess.argmin()]), best_s + float(truth.min())
    return Sweep(
        len(sizes),
        float(np.average(correlations, weights=sizes)),
        float(np.mean(regrets)),
        max(regrets),
        sum(regret == 0 for regret in regrets),
        chosen_s / best_s - 1,
    )


def _ranks(values: Floats) -> Floats:
    ranks = np.empty(len(values))
    ranks[np.argsort(values)] = np.arange(len(values))
    return ranks
