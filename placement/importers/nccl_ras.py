"""NCCL's RAS report (`ncclras`): a job's size and its communicators, which prove no health."""

from __future__ import annotations

import re
from typing import Any

from ..errors import Problem
from .facts import Facts
from .registry import Importer
from .source import Source

_VERSION = re.compile(r"^NCCL version (\S{1,60})", re.MULTILINE)
_JOB = re.compile(r"^\s*Nodes\s+Processes\s+GPUs", re.MULTILINE)
_COMMUNICATORS = re.compile(r"^\s*Group\s+Comms\s+Nodes\s+Ranks", re.MULTILINE)
_SECTIONS = ("Job summary", "Communicators", "Errors", "Warnings")
_NO_PROOF = (
    "RUNNING and OK are absence of evidence and no proof of health: a rank can hang in a collective"
)
_MOST_LINES = 200


def _certainty(source: Source) -> float:
    text = source.text
    data = source.json
    if isinstance(data, dict) and "nccl_version" in data and "communicators" in data:
        return 0.95
    if "Job summary" in text and _JOB.search(text):
        return 0.95
    return 0.9 if _COMMUNICATORS.search(text) else 0.0


def _read(source: Source) -> Facts:
    data = source.json
    if isinstance(data, dict) and "communicators" in data:
        summary, warnings = _from_json(source, data)
    else:
        summary, warnings = _from_text(source)
    summary["health"] = None
    summary["not_told"] = ["health: " + _NO_PROOF]
    fix = "add a file that describes the cluster"
    return Facts(
        "nccl-ras",
        summary,
        measurements={"communicators": summary["communicators"]},
        not_alone=Problem("", "the state of a job's communicators, not the cluster", fix),
        warnings=(*warnings, _NO_PROOF),
    )


def _from_text(source: Source) -> tuple[dict[str, Any], list[str]]:
    sections = _sections(source)
    warnings: list[str] = []
    jobs = _numbers(sections.get("Job summary", []), 3)
    if "Job summary" in sections and not jobs:
        found = "a job summary without numbers"
        raise source.refuse(source.line_of("Job summary"), found, "hand in the whole report")
    job = jobs[0] if len(jobs) == 1 and len(jobs[0]) == 5 else None
    rows = [_communicator(number, words) for number, words in sections.get("Communicators", [])]
    communicators = [row for row in rows if row is not None]
    if "Communicators" not in sections:
        warnings.append(f"line {len(source.lines)}: the report ends before the communicators")
    version = _VERSION.search(source.text)
    summary: dict[str, Any] = {
        "nccl_version": version[1] if version else None,
        "nodes": job[0] if job else sum(row[0] for row in jobs) or None,
        "processes_per_node": job[1] if job else None,
        "gpus_per_process": job[2] if job else None,
        "processes": job[3] if job else None,
        "gpus": job[4] if job else None,
        "communicators": communicators,
        "errors": _told(sections.get("Errors", [])),
        "warnings": _told(sections.get("Warnings", [])),
    }
    for name in ("errors", "warnings"):
        warnings += [f"the report's {name}: {line}" for line in summary[name][:20]]
    if job and job[0] * job[1] != job[3]:
        warnings.append(
            f"{source.line_of('Job summary')}: {job[0]} nodes of {job[1]} processes "
            f"are not {job[3]}"
        )
    return summary, warnings


def _sections(source: Source) -> dict[str, list[tuple[int, list[str]]]]:
    """Words of the lines of each section, by line number; rules and blank lines left out."""
    found: dict[str, list[tuple[int, list[str]]]] = {}
    current: list[tuple[int, list[str]]] | None = None
    for number, line in enumerate(source.lines, start=1):
        name = next((one for one in _SECTIONS if re.match(rf"{one}\b", line)), None)
        if name is not None and len(line.split()) <= 4:
            current = found.setdefault(name, [])
        elif current is not None and line.strip() and not line.startswith("==="):
            current.append((number, line.split()))
    return found


def _numbers(lines: list[tuple[int, list[str]]], least: int) -> list[list[int]]:
    return [
        [int(word) for word in words]
        for _, words in lines
        if len(words) >= least and all(re.fullmatch(r"\d{1,9}", word) for word in words)
    ]


def _communicator(number: int, words: list[str]) -> dict[str, Any] | None:
    """A row of the table: ranks per node are a number or a range."""
    if len(words) != 8 or not all(re.fullmatch(r"[\d-]{1,20}", word) for word in words[:6]):
        return None
    count, nodes, per_node, ranks, in_group = words[1:6]
    return {
        "line": number,
        "group": int(words[0]) if words[0].isdigit() else None,
        "communicators": int(count) if count.isdigit() else None,
        "nodes": int(nodes) if nodes.isdigit() else None,
        "ranks_per_node": int(per_node) if per_node.isdigit() else per_node,
        "ranks": int(ranks) if ranks.isdigit() else None,
        "ranks_in_group": int(in_group) if in_group.isdigit() else None,
        "status": words[6],
        "errors": words[7],
    }


def _told(lines: list[tuple[int, list[str]]]) -> list[str]:
    return [f"line {number}: {' '.join(words)}"[:300] for number, words in lines[:_MOST_LINES]]


def _from_json(source: Source, data: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    listed = data["communicators"]
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise source.refuse("communicators", "no list of communicators", "hand in the report")
    hosts: set[str] = set()
    processes: set[tuple[str, int]] = set()
    gpus: set[tuple[str, int]] = set()
    communicators = []
    for one in listed:
        ranks = [rank for rank in one.get("ranks") or [] if isinstance(rank, dict)]
        for rank in ranks:
            host = str(rank.get("host"))
            hosts.add(host)
            for key, held in (("pid", processes), ("nvml_dev", gpus)):
                if isinstance(rank.get(key), int):
                    held.add((host, rank[key]))
        communicators.append(
            {
                "ranks": one.get("size"),
                "ranks_answering": len(ranks),
                "missing_ranks": one.get("missing_ranks_count"),
                "nodes": len({str(rank.get("host")) for rank in ranks}),
            }
        )
    warnings = [
        f"communicators[{i}]: {one['missing_ranks']} ranks do not answer"
        for i, one in enumerate(communicators[:_MOST_LINES])
        if one["missing_ranks"]
    ]
    summary = {
        "nccl_version": data.get("nccl_version"),
        "nodes": len(hosts) or None,
        "processes": len(processes) or None,
        "gpus": len(gpus) or None,
        "communicators": communicators,
    }
    return summary, warnings


IMPORTERS: tuple[Importer, ...] = (
    Importer(
        name="nccl-ras",
        title="NCCL RAS report",
        produced_by="ncclras -v, or ncclras -f json",
        certainty=_certainty,
        read=_read,
    ),
)
