"""SimAI: a topology of GPUs, NVSwitches and switches with all links, and its bus bandwidths."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidInput, Problem
from .accelerator_domains import with_accelerator_domains
from .facts import Facts, Machine
from .hostlists import folded
from .network_summary import network_summary
from .registry import Importer
from .source import Source
from .switch_graph import Cable, network_of

TOPOLOGY = "simai-topology"
BUSBW = "simai-busbw"
MOST_NODES = 2_000_000
_HEADER = re.compile(
    r"^\s*(\d{1,9})\s+(\d{1,9})\s+(\d{1,9})\s+(\d{1,9})\s+(\d{1,9})\s+([A-Za-z]\S*)\s*$"
)
_LINK = re.compile(
    r"^\s*(\d{1,9})\s+(\d{1,9})\s+([0-9.eE+-]+)\s*([kMGT]?)bps\s+([0-9.eE+-]+)\s*(ns|us|ms|s)"
    r"(?:\s+([0-9.eE+-]+))?\s*$"
)
_SCALE = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_GROUPS = ("TP", "DP", "EP", "PP", "DP_EP", "CP")
_BUSBW_LINE = re.compile(r"^\s*([A-Za-z_]+)[ \t]*(?:,[ \t]*)?:\s*(\S*)\s*$")
_OPS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "busbw": "send_recv",
}


@dataclass(frozen=True)
class _Wire:
    a: int
    b: int
    bytes_per_s: float
    latency_s: float


def certainty(source: Source) -> float:
    """How sure it is: five counts and a kind, ids, then links with rates."""
    first = source.lines[0] if source.lines else ""
    if not _HEADER.match(first):
        return 0.0
    return 0.95 if any(_LINK.match(line) for line in source.lines[1:200]) else 0.5


def read(source: Source) -> Facts:
    """Servers, rails and rates. Raises InvalidInput naming the line that does not fit."""
    header = _HEADER.match(source.lines[0])
    if header is None:
        found = f"{source.lines[0][:60]!r} is no header"
        raise source.refuse("line 1", found, "nodes gpus/server nvswitches switches links kind")
    nodes, per_server, nv_count, switch_count, link_count = (int(header[k]) for k in range(1, 6))
    gpus = nodes - nv_count - switch_count
    if nodes > MOST_NODES or gpus < 1 or per_server < 1 or gpus % per_server:
        found = f"{nodes} nodes of which {gpus} are GPUs in servers of {per_server}"
        raise source.refuse("line 1", found, f"at most {MOST_NODES} nodes, in whole servers")
    switches, wires = _read_lines(source, nodes, nv_count + switch_count, link_count)
    nv = set(switches[:nv_count])
    every = set(switches)
    server_of = {gpu: f"server{gpu // per_server}" for gpu in range(nodes) if gpu not in every}
    if sorted(server_of) != list(range(gpus)):
        raise source.refuse("line 2", "GPUs are not numbered from 0 on", "list switches last")
    names = {switch: f"switch{switch}" for switch in switches}
    cables: list[Cable] = []
    nv_links: list[_Wire] = []
    leaf_of: dict[int, int] = {}
    for wire in wires:
        if wire.a in nv or wire.b in nv:
            nv_links.append(wire)
            continue
        ends = [server_of.get(end) or names[end] for end in (wire.a, wire.b)]
        cables.append(Cable(ends[0], ends[1], wire.bytes_per_s, 1, wire.latency_s))
        for gpu, other in ((wire.a, wire.b), (wire.b, wire.a)):
            if gpu in server_of and other not in server_of:
                leaf_of.setdefault(gpu, other)
    servers = list(dict.fromkeys(server_of.values()))
    network = network_of(servers, cables)
    network, warnings = with_accelerator_domains(network, _wide_domains(nv_links, server_of, nv))
    rates = {wire.bytes_per_s for wire in nv_links}
    hosts = set(servers)
    nic = {cable.bytes_per_s for cable in cables if cable.a in hosts or cable.b in hosts}
    machine = Machine(
        accelerator=header[6],
        devices=per_server,
        nic_bytes_per_s=nic.pop() if len(nic) == 1 else None,
    )
    kinds = Counter((wire.bytes_per_s, wire.latency_s) for wire in wires)
    lost = [gpu for gpu in server_of if gpu not in leaf_of]
    if lost:
        told = folded(map(str, lost[:1000]))
        warnings.append(f"{len(lost)} GPUs have no link to a switch: {told}")
    first_leaf = min(leaf_of.values(), default=0)
    rails = all(leaf == first_leaf + gpu % per_server for gpu, leaf in leaf_of.items())
    summary: dict[str, Any] = {
        "nodes": nodes,
        "gpus": gpus,
        "gpu_kind": header[6],
        "servers": len(servers),
        "gpus_per_server": per_server,
        "nvswitches": nv_count,
        "switches": switch_count,
        "leaf_switches": len(set(leaf_of.values())),
        "spine_switches": switch_count - len(set(leaf_of.values())),
        "links": len(wires),
        "link_kinds": [
            {"links": n, "gbps": round(rate * 8 / 1e9, 6), "latency_ns": round(delay * 1e9, 6)}
            for (rate, delay), n in kinds.items()
        ],
        "nvlink_bytes_per_s": rates.pop() if len(rates) == 1 else None,
        "leaf_of_gpu": f"{first_leaf} + gpu mod {per_server}" if rails and leaf_of else "listed",
        **network_summary(network),
    }
    machines = dict.fromkeys(servers, machine)
    return Facts(TOPOLOGY, summary, network, machines, warnings=tuple(warnings))


def _read_lines(
    source: Source, nodes: int, switch_count: int, link_count: int
) -> tuple[list[int], list[_Wire]]:
    """The ids of switches and the links. Raises InvalidInput where they are not as many as told."""
    switches: list[int] = []
    wires: list[_Wire] = []
    for number, line in enumerate(source.lines[1:], 2):
        if not line.strip():
            continue
        words = line.split()
        if len(switches) < switch_count and all(word.isdecimal() for word in words):
            switches += [int(word) for word in words if len(word) < 10]
            continue
        match = _LINK.match(line)
        if match is None:
            found = f"{line.strip()[:60]!r} is no link"
            raise source.refuse(f"line {number}", found, "hand in the whole file")
        wires.append(_wire(source, number, match, nodes))
        if wires[-1].a == wires[-1].b:
            raise source.refuse(f"line {number}", "a link of a node with itself", "remove it")
    if len(switches) != switch_count or len(set(switches)) != len(switches):
        found = f"{len(set(switches))} different switch ids; the header tells of {switch_count}"
        raise source.refuse("line 2", found, "hand in the whole file")
    if any(switch >= nodes for switch in switches):
        raise source.refuse("line 2", f"a switch id of {nodes} or more", "ids go up to nodes - 1")
    if len(wires) != link_count:
        found = f"{len(wires)} links; the header tells of {link_count}"
        raise source.refuse(f"line {len(source.lines)}", found, "hand in the whole file")
    return switches, wires


def _wire(source: Source, number: int, match: re.Match[str], nodes: int) -> _Wire:
    a, b = int(match[1]), int(match[2])
    try:
        rate, delay = float(match[3]) * _SCALE[match[4]] / 8, float(match[5]) * _SECONDS[match[6]]
    except ValueError as error:
        raise source.refuse(f"line {number}", f"{error}", "give a number") from error
    if a >= nodes or b >= nodes:
        raise source.refuse(f"line {number}", f"node {max(a, b)} of {nodes}", "correct the line")
    if not 0 < rate < 1e18 or not 0 <= delay < 1e3:
        raise source.refuse(f"line {number}", "a rate or delay out of range", "correct the line")
    return _Wire(a, b, rate, delay)


def _wide_domains(nv_links: list[_Wire], server_of: dict[int, str], nv: set[int]) -> dict[str, str]:
    """NVLink domains of several servers, by server; empty where each server is one by itself."""
    joined: dict[int, set[str]] = {}
    for wire in nv_links:
        for gpu, switch in ((wire.a, wire.b), (wire.b, wire.a)):
            if gpu in server_of and switch in nv:
                joined.setdefault(switch, set()).add(server_of[gpu])
    if all(len(servers) == 1 for servers in joined.values()):
        return {}
    return {
        server: f"nvswitch{switch}"
        for switch, servers in sorted(joined.items(), reverse=True)
        for server in servers
    }


def busbw_certainty(source: Source) -> float:
    """How sure it is: groups and collectives with a comma before the colon."""
    hits = sum(
        bool((match := _BUSBW_LINE.match(line)) and match[1].lower() in _OPS)
        for line in source.lines[:60]
    )
    groups = sum(line.strip().rstrip(":") in _GROUPS for line in source.lines[:60])
    return 0.95 if hits >= 2 and groups else 0.0


def read_busbw(source: Source) -> Facts:
    """Bus bandwidths by group and collective. Raises InvalidInput naming the line."""
    told: dict[str, dict[str, float | None]] = {}
    group: str | None = None
    for number, line in enumerate(source.lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        match = _BUSBW_LINE.match(line)
        if match is None:
            if number == 1:
                continue
            raise _bad_busbw(source, number, text)
        key, value = match[1], match[2]
        if not value and key.lower() not in _OPS:
            if key in told:
                raise source.refuse(f"line {number}", f"{key} is there again", "give it once")
            group = key
            told[group] = {}
            continue
        if group is None or key.lower() not in _OPS:
            raise _bad_busbw(source, number, text)
        told[group][_OPS[key.lower()]] = _gigabytes(source, number, value)
    if not told:
        raise source.refuse("", "no group", "hand in the whole file")
    unset = [f"{g} {op}" for g, ops in told.items() for op, value in ops.items() if value is None]
    measured = {
        g: {op: value for op, value in ops.items() if value is not None} for g, ops in told.items()
    }
    summary = {
        "bus_bandwidth_gigabytes_per_s": {
            g: {op: value / 1e9 for op, value in ops.items()} for g, ops in measured.items()
        },
        "unset": unset,
        "nodes": "unknown",
        "gpus": "unknown",
    }
    alone = Problem(
        "",
        "bus bandwidths of groups, without the number of nodes or GPUs",
        "hand in the topology with it",
    )
    return Facts(BUSBW, summary, measurements={"bus_bandwidth": measured}, not_alone=alone)


def _gigabytes(source: Source, number: int, text: str) -> float | None:
    """Bytes/s of a number of GB/s; None where it is not set."""
    if text.lower() in ("null", "none", "~", ""):
        return None
    try:
        value = float(text)
    except ValueError as error:
        raise _bad_busbw(source, number, text) from error
    if not 0 < value < 1e9:
        raise source.refuse(f"line {number}", f"a bandwidth of {text[:20]}", "give GB/s")
    return value * 1e9


def _bad_busbw(source: Source, number: int, text: str) -> InvalidInput:
    found = f"{text[:60]!r} is neither a group nor a collective with its bandwidth"
    return source.refuse(f"line {number}", found, "write lines such as TP: and allreduce,: 300")


IMPORTERS: tuple[Importer, ...] = (
    Importer(TOPOLOGY, "SimAI topology", "gen_Topo_Template.py of SimAI", certainty, read),
    Importer(BUSBW, "SimAI bus bandwidths", "busbw.yaml of SimAI", busbw_certainty, read_busbw),
)
