"""`python -m benchmarks.calibrate`: fit, report, cross-validate, write the page, draw, time."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from railweave.placement.cost import CONSTANTS

from . import errors, page
from .measured import FACTS, Step, exchanges, load
from .parameters import (
    constants_with,
    fit_collectives,
    fit_steps,
    predicted_exchanges,
    predicted_steps,
)
from .pictures import draw
from .speed import measure

FOLDS = 5
TRANSFERRED = ("vtrain_multi", "megatron", "dgxc", "bridge")
MIB = 2**20


def main(arguments: list[str] | None = None) -> int:
    """0 when done, 2 for wrong usage or where the measurements are not there."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibrate", description=__doc__)
    parser.add_argument(
        "what", choices=("report", "fit", "cross", "transfer", "draw", "page", "speed")
    )
    parser.add_argument("--facts", type=Path, default=FACTS, help="folder of the published tables")
    parser.add_argument("--thin", type=int, default=4, help="fit every so-manieth single-node row")
    options = parser.parse_args(arguments)
    if options.what == "speed":
        measure()
        return 0
    if not options.facts.is_dir():
        print(f"no measurements in {options.facts}: give their folder with --facts")
        return 2
    measured = load(options.facts)
    for line in measured.left_out:
        print(f"left out: {line}")
    if options.what == "report":
        report(measured.steps, options.facts)
    elif options.what == "fit":
        print_fit(measured.steps, options.facts, options.thin)
    elif options.what == "cross":
        cross_validate(measured.steps, options.thin)
    elif options.what == "transfer":
        transfer(measured.steps, options.thin)
    elif options.what == "page":
        page.write(measured.steps, exchanges(options.facts))
    else:
        draw(measured.steps, exchanges(options.facts))
    return 0


def report(steps: Sequence[Step], facts: Path) -> None:
    """Errors with the constants as they are."""
    predicted = predicted_steps(steps, CONSTANTS)
    for family, error in errors.by_family(steps, predicted).items():
        print(_line(family, error))
    for family in ("vtrain_multi", "vtrain_single"):
        found = errors.sweep(steps, predicted, family)
        print(
            f"{family}: {found.groups} sweeps, rank correlation {found.rank_correlation:.3f}, "
            f"regret {found.regret:.2%} (worst {found.worst_regret:.2%}, of all time "
            f"{found.regret_of_time:.2%}; the best one found {found.exact} times)"
        )
    rows = exchanges(facts)
    seconds = predicted_exchanges(rows, CONSTANTS)
    for family in ("nccl-a100", "nccl-h100", "nccl-points"):
        here = [i for i, row in enumerate(rows) if row.family == family]
        off = np.array([seconds[i] / rows[i].seconds - 1 for i in here])
        large = np.array([rows[i].size >= MIB for i in here])
        print(_line(f"{family} from 1 MiB", errors.error_of(off[large])))
        if not large.all():
            ratio = np.exp(np.abs(np.log1p(off[~large]))).max()
            print(f"{family} below 1 MiB: {int((~large).sum())} rows, at most {ratio:.2f} x off")


def print_fit(steps: Sequence[Step], facts: Path, thin: int) -> None:
    """Fit everything and print the constants."""
    links = fit_collectives(exchanges(facts))
    base = constants_with(links)
    found = links | fit_steps(_thinned(steps, thin), base)
    for name, value in found.items():
        print(f"{name} = {value:.4g}")
    predicted = predicted_steps(steps, constants_with(found))
    for family, error in errors.by_family(steps, predicted).items():
        print(_line(family, error))


def cross_validate(steps: Sequence[Step], thin: int) -> None:
    """Errors on rows that were left out of the fit: every fifth of each family in turn."""
    order = {id(step): index for index, step in enumerate(steps)}
    predicted = np.empty(len(steps))
    for fold in range(FOLDS):
        kept = [s for s in steps if order[id(s)] % FOLDS != fold]
        left = [s for s in steps if order[id(s)] % FOLDS == fold]
        constants = constants_with(fit_steps(_thinned(kept, thin), rounds=8))
        for step, seconds in zip(left, predicted_steps(left, constants), strict=True):
            predicted[order[id(step)]] = seconds
    for family, error in errors.by_family(steps, predicted).items():
        print(_line(f"{family}, left out", error))


def transfer(steps: Sequence[Step], thin: int) -> None:
    """Errors on families that were left out of the fit as a whole, one at a time."""
    for family in TRANSFERRED:
        kept = [step for step in steps if step.family != family]
        left = [step for step in steps if step.family == family]
        constants = constants_with(fit_steps(_thinned(kept, thin), rounds=8))
        off = predicted_steps(left, constants) / [step.step_s for step in left] - 1
        print(_line(f"{family}, left out", errors.error_of(off)), flush=True)


def _thinned(steps: Sequence[Step], thin: int) -> list[Step]:
    return [s for i, s in enumerate(steps) if s.family != "vtrain_single" or i % thin == 0]


def _line(family: str, error: errors.Error) -> str:
    return (
        f"{family:28s} n {error.rows:4d}  mean error {error.mean:6.1%}  "
        f"median {error.median:6.1%}  bias {error.bias:+6.1%}"
    )


if __name__ == "__main__":
    sys.exit(main())
