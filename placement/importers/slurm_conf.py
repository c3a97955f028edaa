"""Slurm's topology.conf: switches over switches and nodes, blocks of nodes, or rings."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import InvalidInput
from .declared_trees import NoTree, Tree, tree_of
from .facts import Facts, Network
from .fat_trees import fat_tree_of
from .hostlists import MOST_NAMES, HostlistError, expanded, folded
from .registry import Importer
from .slurm_blocks import block_warnings, grouped, with_groups
from .source import Source

NAME = "slurm-topology-conf"
MOST_RING_NODES = 16
"""Slurm's own limit of a ring."""
_KEYS = ("SwitchName", "Switches", "Nodes", "LinkSpeed", "BlockName", "BlockSizes", "RingName")
_OLD_SIZES = "BlockLevels"
_SUBJECTS = ("switchname", "blockname", "ringname", "blocksizes", _OLD_SIZES.lower())
_PAIR = re.compile(r"""([A-Za-z]+)\s*=\s*("[^"]*"|'[^']*'|\S*)""")
_FIRST = re.compile(r"^\s*#?\s*(switchname|blockname|ringname|blocksizes)\s*=", re.I | re.M)
_COMMENTED = re.compile(r"^\s*#+\s*BlockName\s*=.*?Nodes\s*=\s*(\S+)", re.I)
_REAL_NAME = re.compile(r"^#\s*([^\s=#]+)=(\S+)\s*$")


@dataclass
class _Lines:
    """What the lines say, with the number of the line of each name."""

    children: dict[str, list[str]] = field(default_factory=dict)
    nodes: dict[str, list[str]] = field(default_factory=dict)
    blocks: dict[str, list[str]] = field(default_factory=dict)
    rings: dict[str, list[str]] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)
    line_of: dict[str, int] = field(default_factory=dict)
    commented: list[tuple[int, int]] = field(default_factory=list)
    real_names: dict[str, str] = field(default_factory=dict)
    names: int = 0
    warnings: list[str] = field(default_factory=list)

    def place(self, switch: str) -> str:
        """Where a switch is described."""
        return f"line {self.line_of.get(switch, 0)}" if switch in self.line_of else "undescribed"


def certainty(source: Source) -> float:
    """How sure it is: lines that begin with the keys that Slurm reads there."""
    found = _FIRST.findall(source.text[:2_000_000])
    if not found:
        return 0.0
    told = [line for line in source.lines[:200] if line.strip() and line.lstrip()[0] != "#"]
    hits = sum(bool(_FIRST.match(line)) for line in told)
    return 0.95 if not told or hits * 2 > len(told) else 0.5


def read(source: Source) -> Facts:
    """Trees, blocks and rings. Raises InvalidInput naming the line that cannot be used."""
    lines = _read_lines(source)
    if not (lines.children or lines.nodes or lines.blocks or lines.rings):
        raise _nothing(source, lines)
    summary: dict[str, Any] = {}
    tree = _tree(source, lines) if lines.children or lines.nodes else None
    if tree is not None:
        summary |= tree_summary(tree, lines.real_names)
        lines.warnings += tree_warnings(tree)
    groups: dict[str, Mapping[str, str]] = {}
    for kind, named in (("block", lines.blocks), ("ring", lines.rings)):
        if named:
            groups[kind] = _membership(source, lines, kind, named)
            summary |= grouped(kind, named)
    if lines.sizes:
        summary["block_sizes"] = lines.sizes
    if lines.blocks:
        lines.warnings += block_warnings(lines.blocks, lines.sizes)
        lines.warnings += _commented_warnings(lines)
    for ring, members in lines.rings.items():
        if len(members) > MOST_RING_NODES:
            at = lines.place(f"ring {ring}")
            found = f"{at}: ring {ring!r} has {len(members)} nodes"
            lines.warnings.append(f"{found}; Slurm takes at most {MOST_RING_NODES}")
    network: Network = with_groups(tree.network() if tree else None, groups)
    summary = {"nodes": len(network.domains), "node_list": folded(network.domains), **summary}
    return Facts(NAME, summary, network, warnings=tuple(lines.warnings))


def tree_summary(tree: Tree, real_names: Mapping[str, str]) -> dict[str, Any]:
    """The figures of a tree of switches."""
    members: dict[str, list[str]] = {}
    for node, switch in tree.above.items():
        members.setdefault(switch, []).append(node)
    by_level: dict[int, int] = {}
    for level in tree.level.values():
        by_level[level] = by_level.get(level, 0) + 1
    summary: dict[str, Any] = {
        "switches": len(tree.level) + len(tree.merged),
        "leaves": len(tree.leaves),
        "switches_by_tier": [by_level[level] for level in sorted(by_level)],
        "tiers": tree.height,
        "roots": list(tree.roots),
        "tiers_of_root": {root: tree.level[root] for root in tree.roots},
        "nodes_of_leaf": {switch: folded(names) for switch, names in members.items()},
    }
    if real_names:
        summary["real_names"] = {one: name for one, name in real_names.items() if one in tree.level}
    return summary


def tree_warnings(tree: Tree) -> list[str]:
    """What a reader of the tree should know."""
    warnings = []
    members: dict[str, int] = {}
    for switch in tree.above.values():
        root = tree.root_of(switch)
        members[root] = members.get(root, 0) + 1
    if len(members) > 1:
        shown = ", ".join(f"{root} ({count} nodes)" for root, count in list(members.items())[:6])
        most = max(members.values())
        warnings.append(
            f"{len(members)} trees that nothing joins: {shown}; jobs of more than {most} nodes "
            "cannot stay in one tree"
        )
    if tree.height == 1 and len(tree.level) == 1:
        warnings.append("a flat cluster: one switch, so placement has no tier to choose by")
    empty = [one for one, level in tree.level.items() if level == 1 and one not in set(tree.leaves)]
    if empty:
        warnings.append(f"{len(empty)} switches hold nothing: {', '.join(empty[:6])}")
    both = [one for one in dict.fromkeys(tree.above.values()) if tree.level[one] > 1]
    if both:
        shown = ", ".join(both[:6])
        warnings.append(f"{len(both)} switches hold both nodes and switches: {shown}")
    for one, kept in list(tree.merged.items())[:6]:
        warnings.append(f"{one!r} and {kept!r} join the same below them: the two are taken as one")
    return warnings


def _tree(source: Source, lines: _Lines) -> Tree:
    known = set(lines.children) | set(lines.nodes)
    for switch, kids in lines.children.items():
        for kid in kids:
            if kid not in known:
                found = f"switch {kid!r} is named under {switch!r} and described nowhere"
                raise source.refuse(lines.place(switch), found, "add its line; is the file whole?")
    try:
        return tree_of(lines.children, lines.nodes, lines.place)
    except NoTree as error:
        if error.kind == "node":
            raise source.refuse(error.place, error.found, error.fix) from error
        first = error
    try:
        tree = fat_tree_of(lines.children, lines.nodes, lines.place)
    except NoTree as error:
        raise source.refuse(error.place, error.found, error.fix) from error
    lines.warnings.append(f"{first.place}: {first.found}; what they join is taken as one part")
    return tree


def _membership(
    source: Source, lines: _Lines, kind: str, named: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    of_node: dict[str, str] = {}
    for name, members in named.items():
        for node in members:
            known = of_node.setdefault(node, name)
            if known != name:
                place = lines.place(f"{kind} {name}")
                there = lines.place(f"{kind} {known}")
                found = f"node {node!r} lies in {kind} {name!r} and, {there}, in {known!r}"
                raise source.refuse(place, found, "put it into one of them")
    return of_node


def _nothing(source: Source, lines: _Lines) -> InvalidInput:
    if lines.commented:
        sizes = sorted({count for _, count in lines.commented})
        of = f"{sizes[0]} nodes" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]} nodes"
        say = f"BlockSizes={','.join(map(str, lines.sizes))} alone describes nothing"
        found = (
            f"no active block: {len(lines.commented)} blocks of {of} are commented out"
            f"{'; ' + say if lines.sizes else ''}"
        )
        fix = "take the # away, and give a BlockSizes that the blocks reach"
        return source.refuse(f"line {lines.commented[0][0]}", found, fix)
    return source.refuse("", "no switch, block or ring", "hand in the whole topology.conf")


def _commented_warnings(lines: _Lines) -> list[str]:
    if not lines.commented:
        return []
    nodes = sum(count for _, count in lines.commented)
    first = lines.commented[0][0]
    return [
        f"line {first}: {len(lines.commented)} blocks of together {nodes} nodes are commented "
        "out; their nodes are not in the cluster"
    ]


def _read_lines(source: Source) -> _Lines:
    lines = _Lines()
    held, start = "", 0
    for number, raw in enumerate(source.lines, 1):
        _read_comment(lines, number, raw)
        text = re.sub(r"(?<!\\)#.*", "", raw).rstrip()
        if not held:
            start = number
        if text.endswith("\\"):
            held += text[:-1] + " "
            continue
        text, held = (held + text).strip(), ""
        if text:
            _read_line(source, lines, start, text)
    if held.strip():
        raise source.refuse(f"line {start}", "the line goes on, and the file ends", "complete it")
    return lines


def _read_comment(lines: _Lines, number: int, raw: str) -> None:
    commented = _COMMENTED.match(raw)
    if commented:
        try:
            lines.commented.append((number, len(expanded(commented[1]))))
        except HostlistError:
            lines.warnings.append(f"line {number}: a commented block that cannot be read")
        return
    real = _REAL_NAME.match(raw)
    if real and real[1].lower() not in _SUBJECTS:
        lines.real_names[real[1]] = real[2]


def _read_line(source: Source, lines: _Lines, number: int, text: str) -> None:
    place = f"line {number}"
    if text.lower().startswith("include "):
        lines.warnings.append(f"{place}: {text!r} is not followed: hand in that file too")
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
    subject, name = subjects[0], values[subjects[0]]
    if subject in ("blocksizes", _OLD_SIZES.lower()):
        lines.sizes = _sizes(source, place, name)
        return
    _add(source, lines, number, subject.removesuffix("name"), name, values)


def _add(
    source: Source, lines: _Lines, number: int, kind: str, name: str, values: Mapping[str, str]
) -> None:
    place = f"line {number}"
    if not name or "[" in name:
        found = f"{name!r} as the name of one {kind}" if name else f"a {kind} without a name"
        raise source.refuse(place, found, f"name each {kind} on a line of its own")
    key = name if kind == "switch" else f"{kind} {name}"
    if key in lines.line_of:
        found = f"{kind} {name!r} is described again, first in line {lines.line_of[key]}"
        raise source.refuse(place, found, "describe it once")
    lines.line_of[key] = number
    members = _list(source, lines, place, values.get("nodes", ""))
    if kind == "switch":
        lines.children[name] = _list(source, lines, place, values.get("switches", ""))
        if members:
            lines.nodes[name] = members
        return
    if "switches" in values:
        raise source.refuse(place, f"Switches under a {kind}", "give it Nodes")
    if not members:
        lines.warnings.append(f"{place}: {kind} {name!r} has no nodes")
    (lines.blocks if kind == "block" else lines.rings)[name] = members


def _list(source: Source, lines: _Lines, place: str, text: str) -> list[str]:
    if not text or text == "(null)":
        return []
    try:
        names = expanded(text, MOST_NAMES - lines.names)
    except HostlistError as error:
        raise source.refuse(place, str(error), "write a list such as node[01-04,7]") from error
    lines.names += len(names)
    distinct = list(dict.fromkeys(names))
    if len(distinct) < len(names):
        twice = next(name for name in distinct if names.count(name) > 1)
        lines.warnings.append(f"{place}: {twice!r} is listed more than once")
    return distinct


def _sizes(source: Source, place: str, text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() and len(part) < 10 for part in parts):
        raise source.refuse(place, f"BlockSizes {text[:60]!r}", "write whole numbers: 4,8,16")
    return [int(part) for part in parts]


IMPORTERS: tuple[Importer, ...] = (
    Importer(
        NAME,
        "Slurm topology.conf",
        "/etc/slurm/topology.conf, or topograph, or azslurm topology",
        certainty,
        read,
    ),
)
