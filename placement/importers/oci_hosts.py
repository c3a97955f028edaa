"""Oracle cloud: the blocks and island of each host, from the metadata service or the API."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from .accelerator_domains import with_accelerator_domains
from .facts import Facts
from .ladders import NotNested, ladder_of
from .network_summary import network_summary
from .reading import list_of, mapping_of, name_of, shown, values_of
from .registry import Importer
from .source import Source

NAME = "oci-hosts"
RUNGS: Mapping[str, str] = {
    "localblock": "local-block",
    "networkblock": "network-block",
    "hpcisland": "hpc-island",
}
"""Tiers by the words of the metadata service, the nearest first."""
_FABRIC = "gpumemoryfabric"
_LINE = re.compile(r"^\s*([\w.-]+):\s*(\{.*)$")
_MARKS = ("HPCIsland", "hpc-island", "hpcIsland", "LocalBlock", "local-block", "localBlock")


def certainty(source: Source) -> float:
    """How sure it is: blocks and islands, in lines of `node: {json}` or in JSON."""
    if not any(mark in source.text for mark in _MARKS):
        return 0.0
    if any(_LINE.match(line) for line in source.lines[:200]):
        return 0.95
    return 0.9 if source.json is not None and "apiVersion" not in source.text else 0.0


def read(source: Source) -> Facts:
    """Tiers and GPU memory fabrics. Raises InvalidInput naming line and reason."""
    warnings: list[str] = []
    told = _from_api(source) if source.json is not None else _from_lines(source, warnings)
    if not told:
        raise source.refuse("", "no host with blocks", "hand in lines such as node1: {...}")
    values = {
        host: {RUNGS[word]: value for word, value in has.items() if word in RUNGS}
        for host, has in told.items()
    }
    fabrics = {host: has[_FABRIC] for host, has in told.items() if _FABRIC in has}
    try:
        ladder = ladder_of(list(RUNGS.values()), values)
    except NotNested as error:
        place = source.line_of(error.nodes[1]) or error.nodes[1]
        raise source.refuse(place, str(error), "ask again; the answers contradict") from error
    network, found = with_accelerator_domains(ladder.network, fabrics)
    lacking = [host for host, has in values.items() if len(has) < len(RUNGS)]
    if lacking:
        warnings.append(f"{len(lacking)} hosts lack a block or island: {', '.join(lacking[:6])}")
    top = ladder.rungs[-1] if ladder.rungs else ""
    trees = {has[top] for has in values.values() if top in has}
    if len(trees) > 1:
        warnings.append(f"{len(trees)} trees that nothing joins: {', '.join(sorted(trees)[:6])}")
    summary = {
        "nodes": len(told),
        "tiers": len(ladder.rungs),
        "values_of_tier": ladder.counts,
        "trees": len(trees),
        "gpu_memory_fabrics": len(set(fabrics.values())) if fabrics else "unknown",
        **network_summary(network),
    }
    return Facts(NAME, summary, network, warnings=(*ladder.warnings, *found, *warnings))


def _from_lines(source: Source, warnings: list[str]) -> dict[str, dict[str, str]]:
    told: dict[str, dict[str, str]] = {}
    for number, line in enumerate(source.lines, 1):
        if not line.strip() or line.lstrip()[0] == "#":
            continue
        match = _LINE.match(line)
        if match is None:
            warnings.append(f"line {number}: {line.strip()[:60]!r} is no host with data")
            continue
        try:
            data = json.loads(match[2])
        except (ValueError, RecursionError) as error:
            found = f"the data of {match[1]!r} is not JSON: {str(error)[:80]}"
            raise source.refuse(f"line {number}", found, "hand in the whole line") from error
        if match[1] in told:
            raise source.refuse(f"line {number}", f"host {match[1]!r} is there twice", "keep one")
        told[match[1]] = _words(source, f"line {number}", data)
    return told


def _from_api(source: Source) -> dict[str, dict[str, str]]:
    told: dict[str, dict[str, str]] = {}
    for value in values_of(source):
        listed: Any = value
        while isinstance(listed, dict) and ("data" in listed or "items" in listed):
            listed = listed.get("data", listed.get("items"))
        if isinstance(listed, dict):
            listed = [
                {"id": host, **data} if isinstance(data, dict) else data
                for host, data in listed.items()
            ]
        for index, one in enumerate(list_of(source, listed, "hosts")):
            host = mapping_of(source, one, f"hosts[{index}]")
            key = next((k for k in ("instance-id", "instanceId", "id") if host.get(k)), "id")
            name = name_of(source, host.get(key), f"hosts[{index}].{key}")
            if name in told:
                raise source.refuse(f"hosts[{index}]", f"{name!r} is there twice", "keep one")
            told[name] = _words(source, f"hosts[{index}]", host)
    return told


def _words(source: Source, place: str, data: Any) -> dict[str, str]:
    """Blocks by plain words, however the keys are written."""
    found: dict[str, str] = {}
    for key, value in mapping_of(source, data, place).items():
        word = re.sub(r"[-_]", "", str(key)).lower().removeprefix("customer").removesuffix("id")
        if word not in RUNGS and word != _FABRIC:
            continue
        if value is None or (isinstance(value, str) and not value.strip()):
            continue
        if not isinstance(value, str):
            raise source.refuse(place, f"{key} is {shown(value)}", "give it as text")
        found[word] = value.strip()
    return found


IMPORTERS: tuple[Importer, ...] = (
    Importer(
        NAME,
        "Oracle cloud's blocks and islands of hosts",
        "curl .../opc/v2/host/rdmaTopologyData on every host, or oci compute compute-host list",
        certainty,
        read,
    ),
)
