"""Lists of host names and the GUIDs of their InfiniBand ports, which give names to a fabric."""

from __future__ import annotations

import re

from ..errors import Problem
from .fabric import identifier
from .facts import Facts
from .registry import Importer
from .source import Source

NAME = "ibstat-names"
_HOST_LINE = re.compile(r"^\s*(?:VM_hostname|hostname|host)[ \t:=]+(\S+)\s*$", re.I)
_GUID_LINE = re.compile(r"^\s*(?:0x)?([0-9a-f]{11,16})\s*$", re.I)
_PAIR_LINE = re.compile(r"^\s*([\w.-]+)\s*[:,=]\s*(?:0x)?([0-9a-f]{11,16})\s*$", re.I)
_IBSTAT_LINE = re.compile(r"^([\w.-]+):\s.*\b(?:Port|Node) GUID:\s*0x([0-9a-f]{1,16})\s*$", re.I)
_OTHER_IBSTAT = re.compile(r"^[\w.-]+:\s*($|CA '|Port \d+:|[A-Z][\w ]+:)")


def certainty(source: Source) -> float:
    """How sure it is: most lines are names or GUIDs, and both are there."""
    lines = [line for line in source.lines[:400] if line.strip() and line.lstrip()[0] != "#"]
    hosts = sum(bool(_HOST_LINE.match(line)) for line in lines)
    guids = sum(bool(_GUID_LINE.match(line)) for line in lines)
    pairs = sum(bool(_PAIR_LINE.match(line) or _IBSTAT_LINE.match(line)) for line in lines)
    if hosts and guids and hosts + guids > 0.8 * len(lines):
        return 0.9
    told = sum(bool(_OTHER_IBSTAT.match(line)) for line in lines)
    return 0.85 if pairs and pairs + told > 0.8 * len(lines) else 0.0


def read(source: Source) -> Facts:
    """Names by GUID. Raises InvalidInput naming the line that contradicts or cannot be read."""
    names: dict[str, str] = {}
    lines: dict[str, int] = {}
    hosts: dict[str, list[str]] = {}
    current: str | None = None
    warnings: list[str] = []
    for number, line in enumerate(source.lines, 1):
        if not line.strip() or line.lstrip()[0] == "#":
            continue
        host, guid = _HOST_LINE.match(line), _GUID_LINE.match(line)
        pair = _PAIR_LINE.match(line) or _IBSTAT_LINE.match(line)
        if host:
            current = host[1]
            hosts.setdefault(current, [])
            continue
        if guid and current is not None:
            name, found = current, identifier(guid[1])
        elif pair:
            name, found = pair[1], identifier(pair[2])
        elif _OTHER_IBSTAT.match(line):
            continue
        else:
            told = f"{line.strip()[:60]!r} is neither a name nor a GUID"
            if guid:
                told = f"the GUID {guid[1]} stands before any name"
            raise source.refuse(f"line {number}", told, "write lines of a name and its GUIDs")
        known = names.setdefault(found, name)
        lines.setdefault(found, number)
        if known != name:
            told = f"GUID {found} is that of {name!r} and, line {lines[found]}, of {known!r}"
            raise source.refuse(f"line {number}", told, "correct one of the lines")
        if found not in hosts.setdefault(name, []):
            hosts[name].append(found)
    bare = [name for name, guids in hosts.items() if not guids]
    if bare:
        warnings.append(f"{len(bare)} hosts have no GUID: {', '.join(bare[:6])}")
    summary = {"hosts": len(hosts), "guids": len(names), "guids_of_host": hosts}
    alone = Problem(
        "",
        f"names of {len(hosts)} hosts by the GUIDs of their ports, and no links",
        "hand in the ibnetdiscover file of the fabric with it",
    )
    return Facts(NAME, summary, not_alone=alone, aliases=names, warnings=tuple(warnings))


IMPORTERS: tuple[Importer, ...] = (
    Importer(
        NAME,
        "host names and port GUIDs",
        "hostname and ibstat -p on every host",
        certainty,
        read,
    ),
)
