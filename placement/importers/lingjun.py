"""Tables of hosts with the switches above each: ASW (top of rack), PSW, DSW."""

from __future__ import annotations

import csv
from typing import Any

from .facts import Facts
from .ladders import ladder_of
from .network_summary import network_summary
from .registry import Importer
from .source import Source

NAME = "lingjun-csv"
_RUNGS = ("asw", "psw", "dsw")
_HOSTS = ("ip", "host", "hostname", "node", "sn")


def certainty(source: Source) -> float:
    """How sure it is: a header with ASW and another kind of switch."""
    header = _header(source)
    return 0.95 if "asw" in header and len(set(header) & set(_RUNGS)) > 1 else 0.0


def read(source: Source) -> Facts:
    """The tiers; a top-of-rack label counts within the PSW it is under. Raises InvalidInput."""
    header = _header(source)
    host_at = next((header.index(name) for name in _HOSTS if name in header), None)
    if host_at is None:
        fix = f"call it one of {', '.join(_HOSTS)}"
        raise source.refuse("line 1", f"no column of hosts in {','.join(header)[:80]}", fix)
    values: dict[str, dict[str, str]] = {}
    lines: dict[str, int] = {}
    rungs = [rung for rung in _RUNGS if rung in header]
    reader = csv.reader(source.lines)
    for row in reader:
        number = reader.line_num
        if number == 1 or not any(cell.strip() for cell in row):
            continue
        if len(row) != len(header):
            found = f"{len(row)} columns under a header of {len(header)}"
            raise source.refuse(f"line {number}", found, "hand in the whole file")
        host = row[host_at].strip()
        if not host:
            raise source.refuse(f"line {number}", "no host", "name it")
        told = {rung: row[header.index(rung)].strip() for rung in rungs}
        has = {rung: value for rung, value in told.items() if value}
        if host in values:
            found = f"host {host[:60]!r} is there again, first in line {lines[host]}"
            raise source.refuse(f"line {number}", found, "list it once")
        values[host], lines[host] = has, number
    if not values:
        raise source.refuse("", "a header and no hosts", "hand in the whole file")
    ladder = ladder_of(rungs, values, unique=False)
    per_tor: dict[str, int] = {}
    for domains in ladder.network.domains.values():
        if "asw" in domains:
            per_tor[domains["asw"]] = per_tor.get(domains["asw"], 0) + 1
    sizes: dict[int, int] = {}
    for size in per_tor.values():
        sizes[size] = sizes.get(size, 0) + 1
    hosts_of: dict[str, dict[str, int]] = {rung: {} for rung in rungs if rung != "asw"}
    for has in values.values():
        for rung, counts in hosts_of.items():
            if rung in has:
                counts[has[rung]] = counts.get(has[rung], 0) + 1
    summary: dict[str, Any] = {
        "nodes": len(values),
        "tiers": len(ladder.rungs),
        "labels_of_tier": {
            rung: len({h[rung] for h in values.values() if rung in h}) for rung in rungs
        },
        "domains_of_tier": ladder.counts,
        "tors_by_hosts": dict(sorted(sizes.items())),
        **{f"hosts_of_{rung}": counts for rung, counts in hosts_of.items()},
        **network_summary(ladder.network),
    }
    return Facts(NAME, summary, ladder.network, warnings=ladder.warnings)


def _header(source: Source) -> list[str]:
    return [cell.strip().strip('"').lower() for cell in source.lines[0][:1000].split(",")]


IMPORTERS: tuple[Importer, ...] = (
    Importer(NAME, "Lingjun topology CSV", "the Lingjun data set", certainty, read),
)
