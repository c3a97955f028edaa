"""Logs of nccl-tests and rccl-tests: what collectives reached, told apart run by run."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..accelerator_names import kind_of_product
from ..errors import Problem
from .facts import Facts
from .registry import Importer
from .source import Source

_LABEL = re.compile(r"^\s*(?:(\[[\w,. -]{1,80}\](?:<\w+>)?|[A-Za-z0-9][\w.-]{0,80}):\s?)?")
_NUMBER = r"(?:\d{1,12}(?:\.\d{1,9})?(?:[eE][+-]?\d{1,2})?)"
_HALF = rf"\s+{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}\s+(?:{_NUMBER}|N/A|nan|inf)"
_ROW = re.compile(
    rf"^\s*(\d{{1,18}})\s+(\d{{1,18}})\s+([a-z][a-z0-9_]{{1,20}})"
    rf"(?:\s+([a-z]{{2,10}}))?(?:\s+(-?\d{{1,9}}))?({_HALF})({_HALF})?\s*$"
)
_BEGUN = re.compile(r"^\s*\d{1,18}\s+\d{1,18}\s+[a-z][a-z0-9_]{1,20}\b")
_COLUMNS = re.compile(r"#\s+size\s+count\s+type\b")
_CONFIG = re.compile(r"#\s*nThread\s+(\d{1,6})\s+nGpus\s+(\d{1,6})\b")
_STARTING = re.compile(r"#\s*Collective test (starting|concluded):\s*(\w+)_perf")
_RANK = re.compile(
    r"#\s*Rank\s+(\d{1,9})\s+(?:Group\s+\d+\s+)?Pid\s+(\d{1,12})\s+on\s+(\S+)\s+device\s+(\d{1,6})"
    r"\s+\[([^\]]*)\](.*)$"
)
_AVERAGE = re.compile(rf"#\s*Avg bus bandwidth\s*:\s*({_NUMBER})")
_BOUNDS = re.compile(r"#\s*Out of bounds values\s*:\s*(\d{1,12})\s*(\w+)")
_SMALL_BYTES = 4096
_MOST_WARNINGS = 20


@dataclass(frozen=True)
class _Row:
    """A line of results; times in seconds and rates in bytes/s, out of place and in place."""

    bytes: int
    redop: str | None
    out: tuple[float, float, float]
    inside: tuple[float, float, float] | None


@dataclass
class _Run:
    """One test. ranks: (rank, pid, host, device, product) as the log lists them."""

    line: int
    headed: bool
    rows: list[_Row] = field(default_factory=list)
    ranks: list[tuple[int, str, str, int, str]] = field(default_factory=list)
    operation: str | None = None
    average: float | None = None
    wrong: int = 0


def _certainty(source: Source) -> float:
    text = source.text
    if "algbw" in text and "busbw" in text and _COLUMNS.search(text):
        return 0.9
    rows = sum(1 for line in source.lines[:2000] if _ROW.match(_plain(line)[1]))
    return 0.6 if rows >= 2 else 0.0


def _plain(line: str) -> tuple[str, str]:
    """The label that a launcher put before a line, and the rest."""
    match = _LABEL.match(line)
    if match is None or match[1] is None:
        return "", line
    return match[1], line[match.end() :]


def _read(source: Source) -> Facts:
    warnings: list[str] = []
    runs = _runs(source, warnings)
    if not runs:
        found = "no line of results of nccl-tests"
        raise source.refuse("", found, "hand in the log of a test that ran to its end")
    told = [_told(number, run, warnings) for number, run in enumerate(runs, start=1)]
    fix = "add a file that describes the cluster"
    return Facts(
        "nccl-tests-log",
        {"run_count": len(runs), "runs": told},
        measurements={
            "collectives": [_measured(run, one) for run, one in zip(runs, told, strict=True)]
        },
        not_alone=Problem("", "measurements of collectives, not what was measured", fix),
        warnings=tuple(warnings[:_MOST_WARNINGS]),
    )


def _runs(source: Source, warnings: list[str]) -> list[_Run]:
    """The runs by label and in the order they began."""
    current: dict[str, _Run] = {}
    done: list[_Run] = []
    for number, line in enumerate(source.lines, start=1):
        label, text = _plain(line)
        run = current.get(label)
        if "#" in text:
            if _CONFIG.search(text) or _STARTING.search(text) or _COLUMNS.search(text):
                if run is None or run.rows:
                    run = current[label] = _Run(number, True)
                    done.append(run)
                started = _STARTING.search(text)
                if started:
                    run.operation = started[2]
            elif run is not None:
                _take_comment(run, number, text, warnings)
            continue
        match = _ROW.match(text)
        if match is None:
            if _BEGUN.match(text):
                warnings.append(f"line {number}: cut or no whole line of results; left out")
            continue
        row = _row(match)
        if run is None:
            warnings.append(f"line {number}: results without a header: the end of an earlier run")
            run = current[label] = _Run(number, False)
            done.append(run)
        elif run.rows and row.bytes < run.rows[-1].bytes:
            warnings.append(f"line {number}: sizes begin anew without a header: another run")
            run = current[label] = _Run(number, False)
            done.append(run)
        run.rows.append(row)
    return [run for run in done if run.rows]


def _take_comment(run: _Run, number: int, text: str, warnings: list[str]) -> None:
    if rank := _RANK.search(text):
        run.ranks.append((int(rank[1]), rank[2], rank[3], int(rank[4]), rank[6].strip()))
    elif average := _AVERAGE.search(text):
        run.average = float(average[1])
    elif (bounds := _BOUNDS.search(text)) and int(bounds[1]):
        run.wrong = int(bounds[1])
        warnings.append(f"line {number}: {run.wrong} values out of bounds: the results are wrong")


def _row(match: re.Match[str]) -> _Row:
    return _Row(
        bytes=int(match[1]),
        redop=match[4],
        out=_half(match[6]),
        inside=_half(match[7]) if match[7] else None,
    )


def _half(text: str) -> tuple[float, float, float]:
    """Seconds, and bytes/s by the algorithm and over the bus."""
    time_us, alg, bus = (float(word) for word in text.split()[:3])
    return time_us * 1e-6, alg * 1e9, bus * 1e9


def _told(number: int, run: _Run, warnings: list[str]) -> dict[str, Any]:
    rows = run.rows
    peak = max(rows, key=lambda row: row.out[2])
    insides = [row for row in rows if row.inside is not None]
    peak_in = max(insides, key=lambda row: row.inside[2] if row.inside else 0.0, default=None)
    ratio = _ratio(rows)
    operations, ranks = _inferred(rows, ratio)
    listed = len({rank for rank, *_ in run.ranks}) or None
    if run.operation is not None:
        operations = [run.operation.replace("_", "-")]
    if listed and ranks and listed != ranks and operations == ["all-reduce"]:
        warnings.append(
            f"line {run.line}: {listed} ranks are listed, the rates are those of {ranks}"
        )
    small = [row.out[0] for row in rows if row.bytes <= _SMALL_BYTES]
    kinds = sorted({kind_of_product(product) for *_, product in run.ranks if product})
    return {
        "run": number,
        "line": run.line,
        "with_header": run.headed,
        "rows": len(rows),
        "rows_of_some_bytes": sum(row.bytes > 0 for row in rows),
        "least_bytes": min((row.bytes for row in rows if row.bytes), default=0),
        "most_bytes": max(row.bytes for row in rows),
        "operations": operations,
        "bus_over_algorithm": ratio,
        "ranks": listed or ranks,
        "ranks_listed": listed,
        "processes": len({(host, pid) for _, pid, host, *_ in run.ranks}) or None,
        "nodes": len({host for _, _, host, *_ in run.ranks}) or None,
        "accelerators": kinds,
        "peak_bus_gbyte_per_s": peak.out[2] / 1e9,
        "peak_algorithm_gbyte_per_s": peak.out[1] / 1e9,
        "peak_bytes": peak.bytes,
        "peak_in_place_bus_gbyte_per_s": _in_place(peak_in),
        "average_bus_gbyte_per_s": run.average,
        "small_message_latency_us": statistics.median(small) * 1e6 if small else None,
    }


def _in_place(row: _Row | None) -> float | None:
    return row.inside[2] / 1e9 if row is not None and row.inside is not None else None


def _ratio(rows: Sequence[_Row]) -> float | None:
    """Bus over algorithm bandwidth of the fastest row, where two digits are the most exact."""
    fastest = max(rows, key=lambda row: row.out[1])
    return round(fastest.out[2] / fastest.out[1], 4) if fastest.out[1] > 0 else None


def _inferred(rows: Sequence[_Row], ratio: float | None) -> tuple[list[str], int | None]:
    """Operations that have this ratio, and of how many ranks (nccl-tests, PERFORMANCE.md)."""
    reduces = any(row.redop not in (None, "none") for row in rows)
    if ratio is None:
        return [], None
    if 1.02 < ratio < 1.9999:
        return ["all-reduce"], round(2 / (2 - ratio))
    if 0.4 < ratio < 0.98:
        gathers = ["all-gather", "all-to-all", "gather", "scatter"]
        return (["reduce-scatter"] if reduces else gathers), round(1 / (1 - ratio))
    if 0.98 <= ratio <= 1.02:
        return (
            ["all-reduce of 2 ranks", "reduce"] if reduces else ["broadcast", "send-recv"]
        ), None
    return (["all-reduce"] if ratio > 1 else []), None


def _measured(run: _Run, told: dict[str, Any]) -> dict[str, Any]:
    return {
        "operations": told["operations"],
        "ranks": told["ranks"],
        "nodes": told["nodes"],
        "rows": [
            {
                "bytes": row.bytes,
                "time_s": row.out[0],
                "algorithm_bytes_per_s": row.out[1],
                "bus_bytes_per_s": row.out[2],
            }
            for row in run.rows
        ],
    }


IMPORTERS: tuple[Importer, ...] = (
    Importer(
        name="nccl-tests-log",
        title="nccl-tests log",
        produced_by="all_reduce_perf -b 8 -e 8G -f 2 -g 8 (nccl-tests or rccl-tests)",
        certainty=_certainty,
        read=_read,
    ),
)
