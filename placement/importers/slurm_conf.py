"""Slurm's topology.conf: switches over switches and nodes, blocks of nodes, or rings."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from ..errors import InvalidInput
from .fabric import identifier
from .facts import Facts
from .hostlists import HostlistError, counted
from .registry import Importer
from .slurm_parts import Parts
from .source import Source

NAME = "slurm-topology-conf"
_KEYS = ("SwitchName", "Switches", "Nodes", "LinkSpeed", "BlockName", "BlockSizes", "RingName")
_OLD_SIZES = "BlockLevels"
_SUBJECTS = ("switchname", "blockname", "ringname", "blocksizes", _OLD_SIZES.lower())
_PAIR = re.compile(r"""(?<![A-Za-z])([A-Za-z]+)\s*=\s*("[^"]*"|'[^']*'|\S*)""")
_FIRST = re.compile(
    r"^[ \t]*(?:#[ \t]*)?(?:switchname|blockname|ringname|blocksizes)[ \t]*=", re.I | re.M
)
_COMMENTED = re.compile(r"^\s*#+\s*BlockName\s*=.*?Nodes\s*=\s*(\S+)", re.I)
_REAL_NAME = re.compile(r"^#\s*([^\s=#]+)=(\S+)\s*$")
_GUID = re.compile(r"0x[0-9a-f]{12,16}", re.I)


def certainty(source: Source) -> float:
    """How sure it is: lines that begin with the keys that Slurm reads there."""
    if not _FIRST.search(source.text):
        return 0.0
    told = [line for line in source.lines[:200] if line.strip() and line.lstrip()[0] != "#"]
    hits = sum(bool(_FIRST.match(line)) for line in told)
    return 0.95 if not told or hits * 2 > len(told) else 0.5


def read(source: Source) -> Facts:
    """Trees, blocks and rings. Raises InvalidInput naming the line that cannot be used."""
    parts = Parts(source)
    commented: list[tuple[int, int]] = []
    held, start = "", 0
    for number, raw in enumerate(source.lines, 1):
        _read_comment(parts, commented, number, raw)
        text = re.sub(r"(?<!\\)#.*", "", raw).rstrip()
        if not held:
            start = number
        if text.endswith("\\"):
            held += text[:-1] + " "
            continue
        text, held = (held + text).strip(), ""
        if text:
            _read_line(parts, f"line {start}", text)
    if held.strip():
        raise source.refuse(f"line {start}", "the line goes on, and the file ends", "complete it")
    if parts.empty:
        raise _nothing(parts, commented)
    summary, network = parts.described()
    if commented:
        nodes = sum(count for _, count in commented)
        parts.warnings.append(
            f"line {commented[0][0]}: {len(commented)} blocks of together {nodes} nodes are "
            "commented out; their nodes are not in the cluster"
        )
    aliases = {identifier(node): node for node in network.domains if _GUID.fullmatch(node)}
    return Facts(NAME, summary, network, aliases=aliases, warnings=tuple(parts.warnings))


def _nothing(parts: Parts, commented: list[tuple[int, int]]) -> InvalidInput:
    if not commented:
        fix = "hand in the whole topology.conf"
        return parts.source.refuse("", "no switch, block or ring", fix)
    sizes = sorted({count for _, count in commented})
    of = f"{sizes[0]} nodes" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]} nodes"
    found = f"no active block: {len(commented)} blocks of {of} are commented out"
    if parts.sizes:
        found += f"; BlockSizes={','.join(map(str, parts.sizes))} alone describes nothing"
    fix = "take the # away, and give a BlockSizes that the blocks reach"
    return parts.source.refuse(f"line {commented[0][0]}", found, fix)


def _read_comment(parts: Parts, commented: list[tuple[int, int]], number: int, raw: str) -> None:
    block = _COMMENTED.match(raw)
    if block:
        try:
            commented.append((number, counted(block[1])))
        except HostlistError:
            parts.warnings.append(f"line {number}: a commented block that cannot be read")
        return
    real = _REAL_NAME.match(raw)
    if real and real[1].lower() not in _SUBJECTS:
        parts.real_names[real[1]] = real[2]


def _read_line(parts: Parts, place: str, text: str) -> None:
    source = parts.source
    if text.lower().startswith("include "):
        parts.warnings.append(f"{place}: {text!r} is not followed: hand in that file too")
        return
    pairs = [(key, value.strip("\"'")) for key, value in _PAIR.findall(text)]
    rest = _PAIR.sub("", text).strip(" \t,;")
    if rest or not pairs:
        found = f"{(rest or text)[:60]!r} is no key=value of a topology.conf"
        raise source.refuse(place, found, "write SwitchName=... Nodes=... or hand in that file")
    values: dict[str, str] = {}
    known = {key.lower(): key for key in (*_KEYS, _OLD_SIZES)}
    for key, value in pairs:
        if key.lower() not in known:
            close = difflib.get_close_matches(key, _KEYS, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            fix = f"{hint}the keys are {', '.join(_KEYS)}"
            raise source.refuse(place, f"unknown key {key!r}", fix)
        if key.lower() in values:
            raise source.refuse(place, f"{key} is given twice", "give it once")
        values[key.lower()] = value
    subjects = [key for key in _SUBJECTS if key in values]
    if len(subjects) != 1:
        found = " and ".join(known[key] for key in subjects) or "no SwitchName or BlockName"
        raise source.refuse(place, f"{found} in one line", "describe one switch or block a line")
    subject = subjects[0]
    if subject in ("blocksizes", _OLD_SIZES.lower()):
        parts.sizes = _sizes(source, place, values[subject])
    else:
        _add(parts, place, subject.removesuffix("name"), values[subject], values)


def _add(parts: Parts, place: str, kind: str, name: str, values: Mapping[str, str]) -> None:
    nodes = parts.names(place, values.get("nodes", ""))
    if kind == "switch":
        parts.add_switch(place, name, parts.names(place, values.get("switches", "")), nodes)
        return
    if "switches" in values:
        raise parts.source.refuse(place, f"Switches under a {kind}", "give it Nodes")
    parts.add_group(place, kind, name, nodes)


def _sizes(source: Source, place: str, text: str) -> list[int]:
    sizes = [part.strip() for part in text.split(",") if part.strip()]
    if not sizes or not all(part.isdecimal() and len(part) < 10 for part in sizes):
        raise source.refuse(place, f"BlockSizes {text[:60]!r}", "write whole numbers: 4,8,16")
    return [int(part) for part in sizes]


IMPORTERS: tuple[Importer, ...] = (
    Importer(
        NAME,
        "Slurm topology.conf",
        "/etc/slurm/topology.conf, or topograph, or azslurm topology",
        certainty,
        read,
    ),
)
