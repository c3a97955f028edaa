"""Debug logs of NCCL and RCCL: what each process found and chose, told apart line by line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from ..errors import Problem
from .facts import Facts
from .nccl_graph import pattern_name
from .registry import Importer
from .source import Source

_LINE = re.compile(
    r"(?P<host>[A-Za-z0-9][\w.-]{0,200}):(?P<pid>\d{1,10}):(?P<tid>\d{1,10}) "
    r"\[(?P<rank>\d{1,7})\] (?:\S{1,200} )?NCCL (?P<level>INFO|WARN|TRACE|ABORT) ?(?P<text>.*)$"
)
_PATTERN = re.compile(
    r"^\s*Pattern (\d{1,3}), crossNic (\d{1,3}), nChannels (\d{1,5}), (?:bw|speed) "
    r"([\d.]{1,20})/([\d.]{1,20}), type (\w{1,5})/(\w{1,5})(?:, sameChannels (\d))?"
)
_CHANNEL = re.compile(r"^\s*(\d{1,4}) :((?: \w{3}/[0-9a-fA-F-]{1,40})+)\s*$")
_SYSTEM = re.compile(r"=== System : maxBw ([\d.]{1,20}) totalBw ([\d.]{1,20}) ===")
_CPU = re.compile(r"^CPU/(\S{1,40})")
_BRANCH = re.compile(
    r"^( *)\+ (\w{3})\[([\d.]{1,20})\] - (\w{3})/([0-9a-fA-F-]{1,40})(?: \(([^)]{0,80})\))?\s*$"
)
_SETTING = re.compile(r"(NCCL_\w{1,60}) set (?:by environment )?to (.{1,200}?)\.?$")
_VERSION = re.compile(r"NCCL version (\S{1,60})")
_RANKS = re.compile(r"\brank (\d{1,9}) n[rR]anks (\d{1,9})\b")
_NETS = re.compile(r"NET/(\w+) : Using (.{1,2000})")
_NET = re.compile(r"\[(\d{1,4})\]\s?([\w.-]{1,60}):(\d{1,3})/(\w+)")
_VIA = re.compile(r" via ([A-Z]\w{1,12}(?:/\w{1,16})*)")
_MOST_KEPT = 200
_MOST_BLOCKS = 100_000


@dataclass
class _Process:
    """What the lines of one process and bracketed number say."""

    host: str
    pid: int
    number: int
    line: int
    graphs: list[dict[str, Any]] = field(default_factory=list)
    system: dict[str, Any] | None = None
    ended: bool = False
    settings: dict[str, str] = field(default_factory=dict)
    nets: list[str] = field(default_factory=list)
    transports: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    stack: list[tuple[int, str]] = field(default_factory=list)


def _certainty(source: Source) -> float:
    seen = 0
    for line in source.lines[:5000]:
        seen += " NCCL " in line and _LINE.search(line) is not None
        if seen >= 1:
            return 0.7
    return 0.0


def _read(source: Source) -> Facts:
    processes: dict[tuple[str, int, int], _Process] = {}
    warnings: list[str] = []
    versions: dict[str, None] = {}
    ranks: dict[int, None] = {}
    totals: set[int] = set()
    for number, line in enumerate(source.lines, start=1):
        match = _LINE.search(line)
        if match is None:
            continue
        key = (match["host"], int(match["pid"]), int(match["rank"]))
        process = processes.get(key)
        if process is None:
            if len(processes) >= _MOST_BLOCKS:
                found = f"more than {_MOST_BLOCKS} processes"
                raise source.refuse(f"line {number}", found, "hand in a part of the log")
            process = processes[key] = _Process(*key, number)
        text = match["text"]
        if version := _VERSION.search(text):
            versions.setdefault(version[1])
        if found_rank := _RANKS.search(text):
            ranks.setdefault(int(found_rank[1]))
            totals.add(int(found_rank[2]))
        if match["level"] == "WARN" and len(process.faults) < _MOST_KEPT:
            process.faults.append(f"line {number}: {text.strip()[:300]}")
        _take(process, number, text, warnings)
    if not processes:
        found = "no line of NCCL"
        raise source.refuse("", found, "run the job with NCCL_DEBUG=INFO and hand in its output")
    for process in processes.values():
        if process.system is not None and not process.ended:
            cpus = ", ".join(process.system["cpus"])
            warnings.append(
                f"line {process.system['line']}: the system of [{process.number}] is partial: "
                f"the dump is cut, only {cpus or 'no CPU'} shown"
            )
    summary = _summary(list(processes.values()), list(versions), ranks, totals)
    fix = "add the topology of the node (NCCL_TOPO_DUMP_FILE) or the network's files"
    found = "what NCCL found and chose in one job, which is no whole description of a cluster"
    return Facts(
        "nccl-log",
        summary,
        measurements={"nccl": summary["blocks"]},
        not_alone=Problem("", found, fix),
        warnings=tuple(warnings[:_MOST_KEPT]),
    )


def _take(process: _Process, number: int, text: str, warnings: list[str]) -> None:
    if pattern := _PATTERN.match(text):
        process.graphs.append(_graph(number, pattern))
    elif (channel := _CHANNEL.match(text)) and process.graphs:
        process.graphs[-1]["channels"][channel[1]] = channel[2].split()
    elif system := _SYSTEM.search(text):
        process.system = {
            "line": number,
            "max_gbyte_per_s": _float(system[1]),
            "total_gbyte_per_s": _float(system[2]),
            "cpus": [],
            "links": [],
        }
        process.ended, process.stack = False, []
    elif process.system is not None and not process.ended:
        _take_system(process, number, text, warnings)
    if setting := _SETTING.search(text):
        process.settings[setting[1]] = setting[2]
    elif nets := _NETS.search(text):
        process.nets = [f"{net[2]}:{net[3]}" for net in _NET.finditer(nets[2])]
    elif via := _VIA.search(text):
        process.transports[via[1]] = process.transports.get(via[1], 0) + 1


def _graph(number: int, match: re.Match[str]) -> dict[str, Any]:
    return {
        "line": number,
        "pattern": int(match[1]),
        "pattern_name": pattern_name(int(match[1])),
        "cross_nic": int(match[2]),
        "channel_count": int(match[3]),
        "gbyte_per_s_intra": _float(match[4]),
        "gbyte_per_s_inter": _float(match[5]),
        "type_intra": match[6],
        "type_inter": match[7],
        "same_channels": int(match[8]) if match[8] else None,
        "channels": {},
    }


def _take_system(process: _Process, number: int, text: str, warnings: list[str]) -> None:
    """A line of a system dump: its indent is where the name of what it hangs on begins."""
    system = process.system
    if system is None:
        return
    if text.startswith("=========="):
        process.ended = True
    elif cpu := _CPU.match(text):
        name = f"CPU/{cpu[1]}"
        system["cpus"].append(name)
        process.stack = [(0, name)]
    elif branch := _BRANCH.match(text):
        indent = len(branch[1])
        while process.stack and process.stack[-1][0] > indent:
            process.stack.pop()
        if not process.stack or process.stack[-1][0] != indent:
            warnings.append(f"line {number}: it hangs on nothing that is shown; left out")
            return
        name = f"{branch[4]}/{branch[5]}"
        if len(system["links"]) < _MOST_BLOCKS:
            system["links"].append(
                {
                    "from": process.stack[-1][1],
                    "to": name,
                    "kind": branch[2],
                    "gbyte_per_s": _float(branch[3]),
                }
            )
        process.stack.append((text.index(" - ", indent) + 3, name))


def _float(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text) else None


def _summary(
    processes: list[_Process], versions: list[str], ranks: dict[int, None], totals: set[int]
) -> dict[str, Any]:
    blocks = [
        {
            "host": process.host,
            "pid": process.pid,
            "rank": process.number,
            "graphs": process.graphs,
            "system": process.system,
            "settings": process.settings,
            "nets": process.nets,
            "transports": process.transports,
            "faults": process.faults,
        }
        for process in processes
    ]
    return {
        "hosts": len({process.host for process in processes}),
        "host_names": sorted({process.host for process in processes})[:_MOST_KEPT],
        "processes": len({(process.host, process.pid) for process in processes}),
        "nccl_versions": versions,
        "ranks_seen": len(ranks) or None,
        "ranks_in_job": max(totals, default=None),
        "pxn_disabled": any(p.settings.get("NCCL_PXN_DISABLE") == "1" for p in processes) or None,
        "faults": [fault for process in processes for fault in process.faults][:_MOST_KEPT],
        "blocks": blocks,
    }


IMPORTERS: tuple[Importer, ...] = (
    Importer(
        name="nccl-log",
        title="NCCL debug log",
        produced_by="NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,NET in the job's environment",
        certainty=_certainty,
        read=_read,
    ),
)
