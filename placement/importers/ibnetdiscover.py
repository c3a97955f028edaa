"""The records that `ibnetdiscover` prints, and the like ones that ibsim simulates."""

from __future__ import annotations

import re

from .fabric import End, Fabric, identifier
from .fabric_facts import fabric_facts
from .facts import Facts
from .registry import Importer
from .source import Source

NAME = "ibnetdiscover"
_KINDS = {"Switch": "switch", "Ca": "ca", "Hca": "ca", "Rt": "router"}
_OF_LETTER = {"S": "switch", "H": "ca", "R": "router"}
_START = re.compile(r"^(?:Switch|Ca|Hca|Rt)\s+\d+\s+\"", re.M)
_HEADER = re.compile(r'^(Switch|Ca|Hca|Rt)\s+(\d{1,9})\s+"([^"]+)"\s*(?:#\s*"(.*)"(.*))?')
_PORT = re.compile(
    r"^\[(\d{1,9})\](?:\[ext \d+\])?(?:\(([0-9a-fA-F]+)\))?\s*"
    r'"([^"]+)"\s*\[(\d{1,9})\](?:\[ext \d+\])?(?:\(([0-9a-fA-F]+)\))?(.*)$'
)
_PEER = re.compile(r'[^#]*#[^"]*"(.*)"')
_SPEED = re.compile(r"(?<![\w.])(\d{1,2})x([A-Z]{2,3}\d*)\b")
_WIDTH = re.compile(r"(?<!\S)w=(1|2|4|8|12)(?!\S)")
_FACT = re.compile(r"^(vendid|devid|sysimgguid|switchguid|caguid|rtguid|nodeguid)\s*=\s*(\S*)")
_DIRECTIVE = re.compile(r"^(include|do|module|#|Chassis|Non-Chassis|Spine|Line|\s*$)", re.I)


def certainty(source: Source) -> float:
    """How sure it is: lines such as `Switch 41 "S-..."`."""
    return 0.95 if _START.search(source.text) else 0.0


def read(source: Source) -> Facts:
    """Switches, adapters and links. Raises InvalidInput naming the line that cannot be used."""
    fabric = Fabric(source)
    ports: dict[str, int] = {}
    current: str | None = None
    kinds_by_name: dict[str, str] = {
        match[3]: _KINDS[match[1]] for line in source.lines if (match := _HEADER.match(line))
    }
    last = _last_told(source)
    cut_at = 0
    for number, line in enumerate(source.lines, 1):
        header = _HEADER.match(line)
        if header:
            current = header[3]
            _take_header(source, fabric, number, header)
            ports[current] = int(header[2])
        elif line.startswith("["):
            match = _PORT.match(line)
            if number == last and line.count('"') % 2:
                cut_at, match = number, None
            if match is None and number == last:
                cut_at = number
            elif match is None or current is None:
                found = f"{line[:60]!r} is no port" if current else "a port outside of any record"
                raise source.refuse(f"line {number}", found, "hand in the file as it was printed")
            else:
                _take_port(source, fabric, number, current, ports[current], match, kinds_by_name)
        elif _FACT.match(line):
            current = None
        elif not _DIRECTIVE.match(line):
            if number != last:
                found = f"{line[:60]!r} is no record, port or comment"
                raise source.refuse(f"line {number}", found, "hand in the file as it was printed")
            cut_at = number
        elif line.lower().startswith("include"):
            fabric.warnings.append(f"line {number}: {line.strip()!r} is not followed")
    return fabric_facts(fabric, NAME, _incomplete(fabric, last, cut_at))


def _last_told(source: Source) -> int:
    return max((n for n, line in enumerate(source.lines, 1) if line.strip()), default=0)


def _take_header(source: Source, fabric: Fabric, number: int, header: re.Match[str]) -> None:
    kind, key, name = _KINDS[header[1]], header[3], (header[4] or "").strip()
    known = fabric.ends.get(key)
    if known is not None and known.line is not None:
        found = f"{key!r} is described again, first in line {known.line}"
        raise source.refuse(f"line {number}", found, "hand in one run of the program")
    if known is not None and known.kind != kind:
        found = f"{key!r} is a {kind} here and a {known.kind} before"
        raise source.refuse(f"line {number}", found, "correct one of the lines")
    if int(header[2]) > 255:
        raise source.refuse(f"line {number}", f"{header[2]} ports", "a node has at most 255")
    fabric.end(key, kind, name or _plain(key), number)


def _take_port(
    source: Source,
    fabric: Fabric,
    number: int,
    key: str,
    ports: int,
    match: re.Match[str],
    kinds: dict[str, str],
) -> None:
    local, remote, rest = int(match[1]), int(match[4]), match[6]
    if local > ports:
        found = f"port {local} of a node with {ports} ports"
        raise source.refuse(f"line {number}", found, "correct the line")
    peer_key = match[3]
    named = _PEER.match(rest)
    kind = kinds.get(peer_key) or _OF_LETTER.get(peer_key[:1] if peer_key[1:2] == "-" else "", "")
    if not kind:
        found = f"{peer_key!r} has no record, so what it is cannot be told"
        raise source.refuse(f"line {number}", found, "hand in the whole file")
    peer = fabric.end(peer_key, kind, (named[1].strip() if named else "") or _plain(peer_key))
    _learn(fabric.ends[key], match[2])
    _learn(peer, match[5])
    speed = _SPEED.search(rest[named.end() :] if named else rest)
    width = _WIDTH.search(rest)
    fabric.link(
        number,
        (key, local),
        (peer_key, remote),
        int(speed[1]) if speed else int(width[1]) if width else None,
        speed[2] if speed else None,
    )


def _learn(end: End, guid: str | None) -> None:
    if guid and (found := identifier(guid)) not in end.identifiers:
        end.identifiers.append(found)


def _plain(key: str) -> str:
    """A simulated node is called by its identifier; a GUID is no name."""
    return "" if re.fullmatch(r"[SHR]-[0-9a-fA-F]+", key) else key


def _incomplete(fabric: Fabric, last: int, cut_at: int) -> str | None:
    missing = [key for key, end in fabric.ends.items() if end.line is None and not end.aggregates]
    if not missing and not cut_at:
        return None
    described = [end for end in fabric.ends.values() if end.line]
    newest = max(described, key=lambda end: end.line or 0, default=None)
    told = f"line {last}: the file is incomplete"
    if cut_at:
        told += ", its last line is cut"
    if missing:
        switches = sum(fabric.ends[key].kind == "switch" for key in missing)
        told += (
            f": {switches} switches and {len(missing) - switches} adapters are referred to and "
            "have no record"
        )
    if newest is not None:
        key = next(key for key, end in fabric.ends.items() if end is newest)
        count = sum(port[0] == key for link in fabric.links.values() for port in link.sides)
        told += f"; the last record is that of {newest.name!r} with {count} ports"
    return told


IMPORTERS: tuple[Importer, ...] = (
    Importer(NAME, "ibnetdiscover output or an ibsim net", "ibnetdiscover", certainty, read),
)
