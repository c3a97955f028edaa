"""Slurm's topology.yaml: several topologies in one file, each a tree, blocks, rings or a torus."""

from __future__ import annotations

import difflib
import re
from typing import Any

from ..errors import Problem
from .facts import Facts, Network
from .reading import list_of, mapping_of, name_of, places_of, shown, values_of
from .registry import Importer
from .slurm_parts import Parts
from .source import Source

NAME = "slurm-topology-yaml"
_KINDS = ("tree", "block", "flat", "ring", "torus3d")
_GENERAL = ("topology", "cluster_default")
_START = r"^[ \t]*(?:-[ \t]*)?(?:\{[ \t]*)?[\"']?"
_MARK = re.compile(rf"{_START}(?:topology|cluster_default|{'|'.join(_KINDS)})[\"']?[ \t]*:", re.M)
_BEGINS = re.compile(rf"{_START}topology[\"']?[ \t]*:[ \t]*\S", re.M)
LARGEST_SIDE = 2**18


def certainty(source: Source) -> float:
    """How sure it is: a list of mappings with `topology:` and one of its kinds."""
    if not _BEGINS.search(source.text) or len(_MARK.findall(source.text[:100_000])) < 2:
        return 0.0
    documents = source.documents
    if not documents:
        return 0.4
    first = documents[0][0] if isinstance(documents[0], list) and documents[0] else documents[0]
    return 0.95 if isinstance(first, dict) and isinstance(first.get("topology"), str | int) else 0.0


def read(source: Source) -> Facts:
    """The default topology as a network, all of them as figures. Raises InvalidInput."""
    described: dict[str, dict[str, Any]] = {}
    networks: dict[str, Network | None] = {}
    warnings: list[str] = []
    default: str | None = None
    places = _places(source)
    for entry in _entries(source):
        name = name_of(source, entry.get("topology"), "topology")
        place = places.get(name, f"topology {name}")
        if name in described:
            raise source.refuse(place, f"topology {name!r} is described twice", "name it anew")
        marked = entry.get("cluster_default", False)
        if not isinstance(marked, bool):
            raise source.refuse(place, f"cluster_default {shown(marked)}", "write true or false")
        if marked and default is None:
            default = name
        elif marked:
            warnings.append(f"{place}: {name!r} is a second default; {default!r} stays it")
        kind, unknown = _kind(source, place, name, entry)
        for key in unknown:
            warnings.append(f"{place}: {name!r} has {key!r}, which is not read here")
        parts = Parts(source)
        described[name], networks[name] = _describe(parts, place, name, kind, entry)
        warnings += [f"topology {name!r}: {warning}" for warning in parts.warnings]
    used = default or next(iter(described))
    if default is None and len(described) > 1:
        warnings.append(f"no topology has cluster_default: true; the first, {used!r}, is taken")
    others = [name for name in described if name != used]
    if others:
        warnings.append(f"the cluster is {used!r}; not in it: {', '.join(others)}")
    if described[used]["kind"] not in _KINDS:
        found = f"topology {used!r} is of a kind that is not read: {described[used]['kind']}"
        raise source.refuse(places.get(used, "topology"), found, f"use one of {', '.join(_KINDS)}")
    summary = {"topologies": len(described), "default": used, "described": described}
    network = networks[used]
    alone = None
    if network is None:
        fix = "hand in a file that names the nodes with it"
        alone = Problem(
            places.get(used, "topology"), f"topology {used!r} is flat and names no node", fix
        )
    return Facts(NAME, summary, network, not_alone=alone, warnings=tuple(warnings))


def _entries(source: Source) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for document in values_of(source):
        entries = document if isinstance(document, list) else [document]
        found += [
            mapping_of(source, entry, f"topology {index + 1}")
            for index, entry in enumerate(entries)
        ]
    if not found:
        raise source.refuse("", "no topology", "hand in the whole file")
    return found


def _places(source: Source) -> dict[str, str]:
    return places_of(source, r"topology[\"']?[ \t]*:[ \t]*[\"']?([^\"'\s,#][^\"'\n,#]*)")


def _kind(source: Source, place: str, name: str, entry: dict[str, Any]) -> tuple[str, list[str]]:
    """The kind that is given, and keys that are none; a kind that is not known is named."""
    kinds = [key for key in _KINDS if entry.get(key) not in (None, False)]
    unknown = [str(key) for key in entry if key not in (*_KINDS, *_GENERAL)]
    if len(kinds) > 1:
        raise source.refuse(place, f"{name!r} is both {' and '.join(kinds)}", "choose one")
    if kinds:
        return kinds[0], unknown
    if not unknown:
        raise source.refuse(place, f"{name!r} has no kind", f"give it one of {', '.join(_KINDS)}")
    close = difflib.get_close_matches(unknown[0], _KINDS, n=1)
    if close:
        fix = f"did you mean {close[0]}?"
        raise source.refuse(place, f"{name!r} has an unknown kind {unknown[0]!r}", fix)
    return unknown[0], unknown


def _describe(
    parts: Parts, place: str, name: str, kind: str, entry: dict[str, Any]
) -> tuple[dict[str, Any], Network | None]:
    """The figures of a topology, and its network where it has nodes."""
    source = parts.source
    if kind == "flat":
        return {"kind": kind}, None
    if kind not in _KINDS:
        return {"kind": kind}, None
    body = mapping_of(source, entry[kind], f"{place} {kind}")
    more: dict[str, Any] = {}
    if kind == "tree":
        for index, each in enumerate(list_of(source, body.get("switches"), f"{place} switches")):
            at = f"{place} switches[{index}]"
            switch = mapping_of(source, each, at)
            parts.add_switch(
                at,
                name_of(source, switch.get("switch"), at),
                _names(parts, at, switch.get("children")),
                _names(parts, at, switch.get("nodes")),
            )
    elif kind == "torus3d":
        more["toruses_described"] = [
            _torus(parts, f"{place} toruses[{index}]", each)
            for index, each in enumerate(list_of(source, body.get("toruses"), f"{place} toruses"))
        ]
    else:
        for index, each in enumerate(list_of(source, body.get(f"{kind}s"), f"{place} {kind}s")):
            at = f"{place} {kind}s[{index}]"
            group = mapping_of(source, each, at)
            nodes = _names(parts, at, group.get("nodes"))
            parts.add_group(at, kind, name_of(source, group.get(kind), at), nodes)
        sizes = list_of(source, body.get("block_sizes"), f"{place} block_sizes")
        if not all(isinstance(size, int) and not isinstance(size, bool) for size in sizes):
            raise source.refuse(place, "block_sizes that are no whole numbers", "write 4, 8, 16")
        parts.sizes = sizes
    if parts.empty:
        raise source.refuse(place, f"topology {name!r} describes nothing", "hand in the whole file")
    summary, network = parts.described()
    return {"kind": kind, **summary, **more}, network


def _names(parts: Parts, place: str, value: Any) -> list[str]:
    if value is None:
        return []
    texts = value if isinstance(value, list) else [value]
    return parts.names(place, ",".join(name_of(parts.source, text, place) for text in texts))


def _torus(parts: Parts, place: str, value: Any) -> dict[str, Any]:
    source = parts.source
    torus = mapping_of(source, value, place)
    name = name_of(source, torus.get("name", torus.get("torus")), place)
    sides = _sides(source, place, torus.get("dims"))
    nodes = _names(parts, place, torus.get("nodes"))
    volume = sides[0] * sides[1] * sides[2]
    if len(nodes) != volume:
        found = f"torus {name!r} of {_by(sides)} holds {volume} nodes, and {len(nodes)} are listed"
        raise source.refuse(place, found, "correct dims or nodes")
    placements = []
    for index, each in enumerate(list_of(source, torus.get("placements"), f"{place} placements")):
        at = f"{place} placements[{index}]"
        inner = _sides(source, at, mapping_of(source, each, at).get("dims"))
        if any(small > large for small, large in zip(inner, sides, strict=True)):
            parts.warnings.append(f"{at}: {_by(inner)} does not fit into {_by(sides)}")
        placements.append(_by(inner))
    parts.add_group(place, "torus", name, nodes)
    return {"name": name, "dims": _by(sides), "nodes": volume, "placements": placements}


def _sides(source: Source, place: str, value: Any) -> tuple[int, int, int]:
    dims = mapping_of(source, value, f"{place} dims")
    found = []
    for side in ("x", "y", "z"):
        length = dims.get(side)
        if not isinstance(length, int) or isinstance(length, bool) or length < 1:
            raise source.refuse(f"{place} dims.{side}", shown(length), "give a whole number")
        if length > LARGEST_SIDE:
            raise source.refuse(f"{place} dims.{side}", shown(length), f"at most {LARGEST_SIDE}")
        found.append(length)
    return found[0], found[1], found[2]


def _by(sides: tuple[int, int, int]) -> str:
    return "x".join(map(str, sides))


IMPORTERS: tuple[Importer, ...] = (
    Importer(NAME, "Slurm topology.yaml", "/etc/slurm/topology.yaml", certainty, read),
)
