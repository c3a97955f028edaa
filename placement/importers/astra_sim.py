"""ASTRA-sim: dimensions of the analytical network, and fat trees of htsim."""

from __future__ import annotations

import math
import re
from typing import Any

from .facts import ANY_NODE, Facts, Machine, Network, TierFacts
from .hostlists import MOST_NAMES
from .network_summary import network_summary
from .reading import list_of, mapping_of, shown, values_of
from .registry import Importer
from .source import Source
from .tier_names import tier_names

ANALYTICAL = "astra-sim-network"
HTSIM = "astra-sim-htsim"
_KEYS = ("topology", "npus_count", "bandwidth", "latency")
_SHAPES = ("Ring", "FullyConnected", "Switch", "Mesh")
_HTSIM_LINE = re.compile(r"^\s*([A-Za-z_]+)\s+(\S+)\s*(?:#.*)?$")
_TIER_KEYS = {
    "downlink_speed_gbps": "gbps",
    "radix_down": "radix_down",
    "radix_up": "radix_up",
    "downlink_latency_ns": "latency_ns",
    "switch_latency_ns": "switch_latency_ns",
    "bundle": "bundle",
    "queue_up": "queue_up",
    "queue_down": "queue_down",
    "oversubscribed": "oversubscribed",
}

_WHOLE = ("radix_down", "radix_up", "bundle")


def certainty(source: Source) -> float:
    """How sure it is: topology, npus_count, bandwidth and latency, each a list."""
    return (
        0.9
        if all(f"{key}" in source.text for key in _KEYS) and "npus_count:" in source.text
        else 0.0
    )


def read(source: Source) -> Facts:
    """Dimensions as tiers, the first one inside a node. Raises InvalidInput."""
    data = mapping_of(source, values_of(source)[0], "the network")
    told = {key: list_of(source, data.get(key), key) for key in _KEYS}
    sizes = {key: len(values) for key, values in told.items()}
    if len(set(sizes.values())) != 1 or not told["topology"]:
        counts = ", ".join(f"{key} {size}" for key, size in sizes.items())
        raise source.refuse("", f"lists of different lengths: {counts}", "one entry a dimension")
    shapes = [str(shape) for shape in told["topology"]]
    wrong = [shape for shape in shapes if shape not in _SHAPES]
    if wrong:
        fix = f"use one of {', '.join(_SHAPES)}"
        raise source.refuse(source.line_of("topology"), f"unknown topology {wrong[0]!r}", fix)
    counts_of = [_whole(source, "npus_count", value) for value in told["npus_count"]]
    rates = [_number(source, "bandwidth", value) * 1e9 for value in told["bandwidth"]]
    delays = [_number(source, "latency", value, zero=True) * 1e-9 for value in told["latency"]]
    inside, outer = counts_of[0], counts_of[1:]
    nodes = math.prod(outer)
    if nodes > MOST_NAMES:
        found = f"{nodes} nodes; at most {MOST_NAMES} are read"
        raise source.refuse(source.line_of("npus_count"), found, "simulate fewer")
    machine = Machine(devices=inside)
    summary: dict[str, Any] = {
        "dimensions": len(shapes),
        "npus": inside * nodes,
        "topology": shapes,
        "npus_count": counts_of,
        "bandwidth_gigabytes_per_s": [rate / 1e9 for rate in rates],
        "latency_ns": [round(delay * 1e9, 6) for delay in delays],
    }
    if not outer:
        return Facts(ANALYTICAL, summary, machines={ANY_NODE: machine})
    names = tier_names(len(outer) - 1)
    domains: dict[str, dict[str, str]] = {}
    for node in range(nodes):
        size, has = 1, {}
        for tier, count in zip(names, outer, strict=False):
            size *= count
            has[tier] = f"{tier}{node // size}"
        domains[f"node{node}"] = has
    network = Network(
        tuple(TierFacts(tier, rates[k], delays[k], 1.0) for k, tier in enumerate(names, 1)),
        domains,
        TierFacts("spine", rates[-1], delays[-1], 1.0),
        rails=inside,
    )
    warnings = (f"the first dimension, of {inside} NPUs, is taken to be the inside of a node",)
    summary |= {"nodes": nodes, **network_summary(network)}
    return Facts(ANALYTICAL, summary, network, dict.fromkeys(domains, machine), warnings=warnings)


def _number(source: Source, key: str, value: Any, zero: bool = False) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise source.refuse(source.line_of(key), f"{key} {shown(value)}", "give numbers")
    if not math.isfinite(value) or value < 0 or (value == 0 and not zero) or value > 1e9:
        raise source.refuse(source.line_of(key), f"{key} {shown(value)}", "give it in range")
    return float(value)


def _whole(source: Source, key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_NAMES:
        raise source.refuse(source.line_of(key), f"{key} {shown(value)}", "give a whole number")
    return value


def htsim_certainty(source: Source) -> float:
    """How sure it is: nodes, tiers and the radix of switches."""
    text = source.text[:100_000]
    marks = (r"^Nodes\s+\d+", r"^Tiers\s+\d+", r"^Tier\s+\d+", r"^Radix_Down\s+\d+")
    hits = sum(bool(re.search(mark, text, re.M | re.I)) for mark in marks)
    return 0.95 if hits >= 3 else 0.0


def read_htsim(source: Source) -> Facts:
    """A fat tree. Raises InvalidInput naming the line."""
    general, tiers = _htsim_lines(source)
    nodes, count = general.get("nodes"), general.get("tiers")
    if nodes is None or count is None:
        raise source.refuse("", "no Nodes or no Tiers", "hand in the whole file")
    if not 1 <= nodes <= MOST_NAMES or count not in (1, 2, 3):
        found = f"{nodes} nodes in {count} tiers"
        raise source.refuse("", found, f"at most {MOST_NAMES} nodes in 1 to 3 tiers")
    if sorted(tiers) != list(range(int(count))):
        found = f"Tiers {int(count)}, and tiers {', '.join(map(str, sorted(tiers))) or 'none'}"
        raise source.refuse("", found, "describe each tier from 0 on")
    levels = [tiers[k] for k in range(int(count))]
    for k, tier in enumerate(levels):
        need = ["gbps", "radix_down", *(["radix_up"] if k < len(levels) - 1 else [])]
        missing = [key for key in need if not tier.get(key)]
        if missing:
            raise source.refuse(f"Tier {k}", f"no {missing[0]}", "give it")
        broken = [
            key for key in _WHOLE if not tier.get(key, 1.0).is_integer() or tier.get(key) == 0
        ]
        if broken:
            found = f"{broken[0]} {tier[broken[0]]:g}"
            raise source.refuse(f"Tier {k}", found, "give a whole number above 0")
    pod = max(1, int(general.get("podsize") or nodes))
    down = int(levels[0]["radix_down"])
    if nodes % down or nodes % pod or pod % down:
        found = f"{nodes} nodes, {down} a leaf switch, pods of {pod}"
        raise source.refuse("", found, "sizes must divide each other")
    leaves = int(nodes) // down
    switches, ports = [leaves], [int(nodes), leaves * int(levels[0].get("radix_up", 0))]
    if len(levels) > 1:
        middle = ports[1] // (int(levels[1]["radix_down"]) * int(levels[1].get("bundle", 1)))
        switches.append(middle)
        ports.append(middle * int(levels[1].get("radix_up", 0)))
    inner = [down, pod][: len(levels) - 1]
    names = tier_names(len(inner))
    domains = {
        f"node{node}": {
            tier: f"{tier}{node // size}" for tier, size in zip(names, inner, strict=True)
        }
        for node in range(int(nodes))
    }
    facts = [_htsim_tier(k, levels, ports) for k in range(len(levels))]
    network = Network(
        tuple(TierFacts(name, *facts[k]) for k, name in enumerate(names)),
        domains,
        TierFacts("spine", *facts[-1]),
        rails=1,
    )
    summary: dict[str, Any] = {
        "nodes": int(nodes),
        "tiers": len(levels),
        "pod_size": pod,
        "pods": int(nodes) // pod,
        "leaf_switches": leaves,
        "middle_switches": switches[1] if len(switches) > 1 else 0,
        "tier_list": [
            {"tier": k, **{key: int(n) if n.is_integer() else n for key, n in tier.items()}}
            for k, tier in enumerate(levels)
        ],
        **network_summary(network),
    }
    return Facts(HTSIM, summary, network)


def _htsim_tier(
    k: int, levels: list[dict[str, float]], ports: list[int]
) -> tuple[float, float | None, float]:
    """Bytes/s of the slowest link up to tier k, seconds there and back, and oversubscription."""
    way = levels[: k + 1]
    delays = [tier.get("latency_ns") for tier in way]
    latency = None if None in delays else 2e-9 * sum(d for d in delays if d is not None)
    capacity = [ports[j] * levels[j]["gbps"] for j in range(k + 1)]
    over = max(1.0, *(capacity[0] / one for one in capacity if one))
    return min(tier["gbps"] for tier in way) * 1e9 / 8, latency, over


def _htsim_lines(source: Source) -> tuple[dict[str, float], dict[int, dict[str, float]]]:
    general: dict[str, float] = {}
    tiers: dict[int, dict[str, float]] = {}
    current: dict[str, float] | None = None
    for number, line in enumerate(source.lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        match = _HTSIM_LINE.match(text)
        key = match[1].lower() if match else ""
        if match is None or not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", match[2]):
            found = f"{text[:60]!r} is no key with a number"
            raise source.refuse(f"line {number}", found, "hand in the whole file")
        value = float(match[2])
        if key == "tier":
            if int(value) in tiers:
                raise source.refuse(f"line {number}", f"tier {int(value)} again", "give it once")
            current = tiers.setdefault(int(value), {})
        elif current is not None and key in _TIER_KEYS:
            current[_TIER_KEYS[key]] = value
        elif current is None and key in ("nodes", "tiers", "podsize"):
            general[key] = value
        else:
            raise source.refuse(f"line {number}", f"unknown key {match[1]!r}", "correct the line")
    return general, tiers


IMPORTERS: tuple[Importer, ...] = (
    Importer(ANALYTICAL, "ASTRA-sim network", "network.yml of ASTRA-sim", certainty, read),
    Importer(HTSIM, "htsim fat tree", "*.topo of ASTRA-sim's htsim", htsim_certainty, read_htsim),
)
