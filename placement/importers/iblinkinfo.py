"""InfiniBand links one a line: `iblinkinfo`, and `ibnetdiscover -p`."""

from __future__ import annotations

import re

from .fabric import Fabric, identifier
from .fabric_facts import fabric_facts
from .facts import Facts
from .registry import Importer
from .source import Source

NAME = "iblinkinfo"
_KINDS = {"CA": "ca", "SW": "switch", "RT": "router", "Switch": "switch", "Router": "router"}
_PORT_LINE = re.compile(
    r"^(CA|SW|RT)\s+(\d{1,9})\s+(\d{1,9})\s+(0x[0-9a-fA-F]+)\s+(\d{1,9})x\s+(\S+)"
    r"(?:\s+-\s+(CA|SW|RT)\s+(\d{1,9})\s+(\d{1,9})\s+(0x[0-9a-fA-F]+)\s+\((.*)\)\s*$|\s+(\S.*)$|\s*$)"
)
_SECTION = re.compile(r"^(CA|Switch|RT|Router):\s+(?:(0x[0-9a-fA-F]+)\s+)?(.*?):?$")
_ARROW = re.compile(
    r"^\s*(?:(0x[0-9a-fA-F]+)\s+)?(?:\"([^\"]*)\"\s+)?(\d{1,9})\s+(\d{1,9})\[[^\]]*\]\s*"
    r"==\(\s*(?:(\d{1,9})X\s+(\S+)(?:\s+Gbps)?\s+)?([A-Za-z]+)\s*/\s*([A-Za-z ]{1,40}?)\s*\)==>"
    r"\s*(?:(0x[0-9a-fA-F]+)\s+)?(?:(\d{1,9})\s+(\d{1,9}))?\s*\[[^\]]*\]\s*\"([^\"]*)\"\s*\((.*)\)\s*$"
)
_ANY = re.compile(rf"{_PORT_LINE.pattern}|==\([^()\n]{{0,80}}\)==>", re.M)
# Signalling rate of a lane in Gb/s, as iblinkinfo prints it.
_SPEED_OF_GBPS = (
    (2.5, "SDR"),
    (5.0, "DDR"),
    (10.0, "QDR"),
    (14.0625, "FDR"),
    (25.78125, "EDR"),
    (53.125, "HDR"),
    (106.25, "NDR"),
    (212.5, "XDR"),
)
_ADAPTER = re.compile(r"\s(HCA-\d+|mlx\d_\S+|hfi1_\d+|ib\w+|ibp\w+|roce\w+)\s*$")


def certainty(source: Source) -> float:
    """How sure it is: lines of ports with their peers."""
    return 0.95 if _ANY.search(source.text) else 0.0


def read(source: Source) -> Facts:
    """Ends and links, each link once. Raises InvalidInput naming the line."""
    fabric = Fabric(source)
    section: tuple[str, str | None, str] | None = None
    kinds = _kinds_by_lid(source)
    keys = _Keys()
    told = 0
    for number, line in enumerate(source.lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        port = _PORT_LINE.match(line)
        arrow = None if port else _ARROW.match(line)
        heading = None if port or arrow else _SECTION.match(line.rstrip())
        if port:
            _take_port(fabric, keys, number, port)
        elif arrow:
            _take_arrow(fabric, number, arrow, section, kinds)
        elif heading:
            section = (_KINDS[heading[1]], heading[2], heading[3].strip())
            continue
        else:
            found = f"{line.strip()[:60]!r} is no port"
            raise source.refuse(f"line {number}", found, "hand in the file as it was printed")
        told += 1
    if not told:
        raise source.refuse("", "no port", "hand in the whole file")
    fabric.warnings += keys.warnings
    return fabric_facts(fabric, NAME)


class _Keys:
    """What an end is kept under: its GUID, with its address where several have the same."""

    def __init__(self) -> None:
        self._lid_of: dict[str, int] = {}
        self.warnings: list[str] = []

    def of(self, number: int, guid: str, lid: int) -> str:
        key = f"0x{identifier(guid)}"
        known = self._lid_of.setdefault(key, lid)
        if known == lid:
            return key
        told = f"line {number}: GUID {key} is at lid {known} and at lid {lid}; they count as two"
        if told.partition(": ")[2] not in {one.partition(": ")[2] for one in self.warnings}:
            self.warnings.append(told)
        return f"{key} lid {lid}"


def _take_port(fabric: Fabric, keys: _Keys, number: int, match: re.Match[str]) -> None:
    lid, port = int(match[2]), int(match[3])
    key = keys.of(number, match[4], lid)
    kind = _KINDS[match[1]]
    if match[7] is None:
        name = (match[12] or "").strip().strip("'\"").strip()
        fabric.end(key, kind, name, number).lid = lid
        fabric.down.append(f"{lid}/{port} {match[5]}x {match[6]}")
        return
    mine, theirs = _names(match[11])
    peer = keys.of(number, match[10], int(match[8]))
    fabric.end(key, kind, mine, number).lid = lid
    fabric.end(peer, _KINDS[match[7]], theirs).lid = int(match[8])
    speed = None if "?" in match[6] else match[6]
    fabric.link(number, (key, port), (peer, int(match[9])), int(match[5]), speed)


def _names(text: str) -> tuple[str, str]:
    quoted = re.match(r"\s*'(.{0,200})'\s+-\s+'(.{0,200})'\s*$", text)
    if quoted:
        return quoted[1].strip(), quoted[2].strip()
    mine, _, theirs = text.partition(" - ")
    return mine.strip(" '"), theirs.strip(" '")


def _take_arrow(
    fabric: Fabric,
    number: int,
    match: re.Match[str],
    section: tuple[str, str | None, str] | None,
    kinds: dict[int, str],
) -> None:
    lid, port = int(match[3]), int(match[4])
    kind, guid, name = section or ("", None, "")
    key = _by_lid(lid)
    mine = match[2] if match[2] is not None else name
    end = fabric.end(key, kinds.get(lid) or kind or _guess(mine), mine.strip(), number)
    end.lid = lid
    for one in (guid, match[1]):
        if one and identifier(one) not in end.identifiers:
            end.identifiers.append(identifier(one))
            end.guid = end.guid or f"0x{identifier(one)}"
    width, speed = match[5], match[6]
    if (match[7].lower() != "active" and match[7].lower() != "init") or match[10] is None:
        shown = f"{width}x {_speed(speed)}" if width else match[8].strip()
        fabric.down.append(f"{lid}/{port} {shown}")
        return
    peer_lid = int(match[10])
    peer = fabric.end(
        _by_lid(peer_lid), kinds.get(peer_lid) or _guess(match[12]), match[12].strip()
    )
    peer.lid = peer_lid
    fabric.link(
        number,
        (key, port),
        (_by_lid(peer_lid), int(match[11])),
        int(width) if width else None,
        _speed(speed) if speed else None,
    )
    could = match[13].strip()
    if could:
        fabric.warnings.append(f"line {number}: {lid}/{port} of {end.name!r}: {could}")


def _kinds_by_lid(source: Source) -> dict[int, str]:
    """What the sections say of the addresses of their own ports."""
    kinds: dict[int, str] = {}
    kind: str | None = None
    for line in source.lines:
        heading = _SECTION.match(line.rstrip())
        if heading:
            kind = _KINDS[heading[1]]
        elif kind and (match := _ARROW.match(line)):
            kinds[int(match[3])] = kind
    return kinds


def _guess(name: str) -> str:
    return "ca" if _ADAPTER.search(f" {name}") or "Aggregation Node" in name else "switch"


def _speed(text: str) -> str:
    try:
        rate = float(text)
    except ValueError:
        return text
    return min(_SPEED_OF_GBPS, key=lambda pair: abs(pair[0] - rate))[1]


def _by_lid(lid: int) -> str:
    return f"lid {lid}"


IMPORTERS: tuple[Importer, ...] = (
    Importer(
        NAME, "iblinkinfo or ibnetdiscover -p", "iblinkinfo or ibnetdiscover -p", certainty, read
    ),
)
