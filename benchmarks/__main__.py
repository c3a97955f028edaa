"""`python -m benchmarks`: the solver and its peers side by side, tables and pictures."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from railweave.placement import place

from . import families, growth, picture, report
from .job import Job
from .measure import Result, side_by_side, unavailable
from .peers import all_peers
from .table import below_bound

ROOT = Path(__file__).resolve().parents[1]
QUICK_FAMILIES = ("b", "c", "d", "e", "b-experts", "e-experts", "c-context", "fragments")
QUICK_FAMILIES += ("mesh", "rings", "tables", "skips", "noisy", "mesh-small", "rings-small")
QUICK_SEEDS = (101, 102)
FULL_SEEDS = (101, 102, 103, 104, 105)


def main(arguments: list[str] | None = None) -> int:
    """Run what is asked for; 0 when done, 1 when a bound proves wrong, 2 for wrong usage."""
    options = _options(arguments)
    peers = {name: peer for name, peer in all_peers().items() if name in options.peers}
    missing = unavailable(peers, _smallest_job())
    for name in missing:
        print(f"left out: {peers[name].NAME} is not installed: {missing[name]}")
    running = {name: peer for name, peer in peers.items() if name not in missing}
    _warm_up()
    folder = ROOT / "docs" if options.record else ROOT / "build" / "benchmarks"
    names = {peers[name].NAME: how for name, how in missing.items()}
    given = sys.argv[1:] if arguments is None else arguments
    command = " ".join(["python -m benchmarks", *given])
    results: list[Result] = []
    grown: list[dict[str, Any]] = []
    run = report.Run(results, grown, names, options.time_limit, options.starts, command)
    for seed in options.seeds:
        for family in options.family:
            made = families.instance(family, seed)
            started = time.perf_counter()
            found = side_by_side(made, family, seed, running, options.time_limit, options.starts)
            for result in found:
                results.append(result)
                print(_line(result), flush=True)
            print(f"  {made.name}: {time.perf_counter() - started:.0f} s", flush=True)
            _write(folder, run)  # so that a run that is stopped leaves what it has
    for size in [] if options.no_growth else options.sizes:
        grown.append(growth.measured(size))
        print(f"growth: {grown[-1]}", flush=True)
        _write(folder, run)
    print(f"written: {(folder / 'benchmarks.md').relative_to(ROOT)}")
    wrong = below_bound(results)
    for result in wrong:
        print(f"the bound is wrong: {_line(result)}", file=sys.stderr)
    return 1 if wrong else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--full", action="store_true", help="every family, five seeds, more starts")
    parser.add_argument("--family", nargs="+", metavar="NAME", help=", ".join(families.FAMILIES))
    parser.add_argument(
        "--seeds", nargs="+", type=int, help="default: 101 and 102, with --full to 105"
    )
    parser.add_argument("--peers", nargs="*", metavar="NAME", help=", ".join(all_peers()))
    parser.add_argument("--time-limit", type=float, default=1.0, help="of place(), in seconds")
    parser.add_argument("--starts", type=int, help="random starts of each setting of a peer")
    parser.add_argument("--sizes", nargs="+", type=int, help="devices, of the growth measurement")
    parser.add_argument("--no-growth", action="store_true", help="leave the growth measurement out")
    parser.add_argument("--record", action="store_true", help="write to docs/, not to build/")
    options = parser.parse_args(arguments)
    options.family = options.family or (families.FAMILIES if options.full else QUICK_FAMILIES)
    options.seeds = options.seeds or (FULL_SEEDS if options.full else QUICK_SEEDS)
    options.starts = options.starts or (3 if options.full else 1)
    options.sizes = options.sizes or (growth.SIZES if options.full else growth.SIZES[:3])
    options.peers = list(all_peers()) if options.peers is None else options.peers
    for given, known, what in (
        (options.family, families.FAMILIES, "family"),
        (options.peers, all_peers(), "peer"),
        (options.sizes, growth.SIZES, "size"),
    ):
        wrong = [item for item in given if item not in known]
        if wrong:
            parser.error(f"no {what} {wrong[0]!r}; there are {', '.join(map(str, known))}")
    return options


def _smallest_job() -> Job:
    made = families.fragments(0)
    return Job(made.pcg, made.cluster)


def _warm_up() -> None:
    """Compile what is compiled at first use, so that no family pays for it."""
    for made in (
        families.instance("b", 0),
        families.fragments(0),
        families.instance("mesh-small", 0),
    ):
        place(made.pcg, made.cluster, time_limit_s=1.0, seed=0)


def _line(result: Result) -> str:
    start = f"{result.family:12} {result.seed:4} {result.method:18}"
    if not result.traffic_bytes:
        return f"{start} no valid placement: {result.problem}"
    over = result.spine_bytes / result.bound_bytes if result.bound_bytes else float("nan")
    note = f"  [{result.problem}]" if result.problem else ""
    return (
        f"{start} {result.spine_bytes:10.4g} B at the spine, {over:6.3f} of the bound, "
        f"{result.seconds:7.3f} s (CPU {result.cpu_seconds:.3f})  {result.setting}{note}"
    )


def _write(folder: Path, run: report.Run) -> None:
    pictures = folder / "benchmarks"
    pictures.mkdir(parents=True, exist_ok=True)
    (folder / "benchmarks.md").write_text(report.page(run), encoding="utf-8")
    (pictures / "ratios.svg").write_text(picture.ratios(run.results), encoding="utf-8")
    if run.growth:
        (pictures / "growth.svg").write_text(picture.growth(run.growth), encoding="utf-8")
    data = {"results": [result.to_data() for result in run.results], "growth": list(run.growth)}
    (pictures / "results.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
