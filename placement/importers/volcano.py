"""Volcano's HyperNodes: groups of nodes, and groups of groups, by tier."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import InvalidInput
from .declared_trees import NoTree, Tree, tree_of
from .documents import documents
from .facts import Facts
from .kubernetes_objects import object_name, objects_in
from .network_summary import network_summary
from .reading import list_of, mapping_of, name_of, places_of, shown, values_of
from .registry import Importer
from .source import Source

NAME = "volcano-hypernode"
_DISCOVERY = "networkTopologyDiscovery"
_KIND = re.compile(r"kind[\"']?\s*:\s*[\"']?HyperNode", re.M)
_MOST_SHOWN = 6


def certainty(source: Source) -> float:
    """How sure it is: HyperNode objects, or the configuration of their discovery."""
    return 0.95 if _KIND.search(source.text) or _DISCOVERY in source.text else 0.0


def read(source: Source) -> Facts:
    """The tree of HyperNodes. Raises InvalidInput naming what cannot be used."""
    if not _KIND.search(source.text):
        raise _discovery(source)
    tiers: dict[str, int] = {}
    members: dict[str, list[tuple[str, str]]] = {}
    patterns: dict[str, list[str]] = {}
    lacking: dict[str, list[str]] = {}
    places = _places(source)
    for index, value in enumerate(objects_in(source), 1):
        if value.get("kind") != "HyperNode":
            continue
        name = object_name(source, value, f"document {index}")
        place = places.get(name, f"document {index}")
        if name in tiers:
            raise source.refuse(place, f"HyperNode {name!r} is described twice", "keep one")
        if "apiVersion" not in value:
            lacking.setdefault("apiVersion", []).append(name)
        if not isinstance(value.get("metadata"), dict):
            lacking.setdefault("metadata", []).append(name)
        spec = mapping_of(source, value.get("spec"), f"{place} spec")
        tier = spec.get("tier")
        if isinstance(tier, str) and tier.isdecimal() and len(tier) < 4:
            tier = int(tier)
        if not isinstance(tier, int) or isinstance(tier, bool) or tier < 0:
            raise source.refuse(f"{place} tier", shown(tier), "give a whole number")
        tiers[name] = tier
        members[name] = []
        for one in list_of(source, spec.get("members"), f"{place} members"):
            _add_member(source, place, name, one, members, patterns, lacking)
    if not tiers:
        raise source.refuse("", "no HyperNode", "hand in kubectl get hypernodes -o yaml")
    children, nodes, warnings = _split(source, tiers, members, patterns)
    try:
        tree = tree_of(children, nodes, lambda name: places.get(name, name))
    except NoTree as error:
        raise source.refuse(error.place, error.found, error.fix) from error
    for parent, kids in children.items():
        wrong = [kid for kid in kids if tiers[kid] >= tiers[parent]]
        if wrong:
            place = places.get(parent, parent)
            found = f"{parent!r} of tier {tiers[parent]} holds {wrong[0]!r} of tier"
            raise source.refuse(place, f"{found} {tiers[wrong[0]]}", "give members a lower tier")
    network = tree.network()
    summary = {
        "hypernodes": len(tiers),
        "hypernodes_of_tier": _by_tier(tiers),
        "nodes": len(network.domains),
        "tiers": len(set(tiers.values())),
        "roots": list(tree.roots),
        **network_summary(network),
    }
    for what, names in lacking.items():
        some = ", ".join(names[:_MOST_SHOWN])
        warnings.append(f"{len(names)} HyperNodes without {what}: {some}")
    if not network.domains:
        raise source.refuse("", "no node: members are only patterns", "name the nodes")
    return Facts(NAME, summary, network, warnings=(*warnings, *_root_warnings(tree)))


def _places(source: Source) -> dict[str, str]:
    return places_of(source, r"\bname[\"']?\s*:\s*[\"']?([\w.-]+)")


def _add_member(
    source: Source,
    place: str,
    name: str,
    value: Any,
    members: dict[str, list[tuple[str, str]]],
    patterns: dict[str, list[str]],
    lacking: dict[str, list[str]],
) -> None:
    member = mapping_of(source, value, f"{place} members")
    kind = member.get("type")
    if kind not in (None, "Node", "HyperNode"):
        raise source.refuse(f"{place} members", f"type {shown(kind)}", "Node or HyperNode")
    if kind is None and name not in lacking.setdefault("the type of members", []):
        lacking["the type of members"].append(name)
    selector = member.get("selector")
    told = member.get("name")
    if isinstance(selector, dict):
        exact, pattern = selector.get("exactMatch"), selector.get("regexMatch")
        if isinstance(exact, dict):
            told = exact.get("name")
        elif isinstance(pattern, dict):
            patterns.setdefault(name, []).append(str(pattern.get("pattern")))
            return
        elif "labelMatch" in selector:
            patterns.setdefault(name, []).append("labels")
            return
    members[name].append((str(kind or ""), name_of(source, told, f"{place} members")))


def _split(
    source: Source,
    tiers: Mapping[str, int],
    members: Mapping[str, Sequence[tuple[str, str]]],
    patterns: Mapping[str, Sequence[str]],
) -> tuple[dict[str, list[str]], dict[str, list[str]], list[str]]:
    """Child HyperNodes and nodes of each, by what their members are."""
    children: dict[str, list[str]] = {}
    nodes: dict[str, list[str]] = {}
    warnings = []
    for name, listed in members.items():
        kids = [one for kind, one in listed if kind == "HyperNode" or (not kind and one in tiers)]
        unknown = [one for one in kids if one not in tiers]
        if unknown:
            place = _places(source).get(unknown[0], name)
            found = f"{name!r} holds HyperNode {unknown[0]!r}, which is not described"
            raise source.refuse(place, found, "add it; is the file whole?")
        children[name] = kids
        own = [one for kind, one in listed if kind == "Node" or (not kind and one not in tiers)]
        if own:
            nodes[name] = own
    for name, told in patterns.items():
        warnings.append(
            f"HyperNode {name!r} takes nodes by {', '.join(told[:3])}, which names none: they "
            "are not in"
        )
    return children, nodes, warnings


def _by_tier(tiers: Mapping[str, int]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for name, tier in tiers.items():
        found.setdefault(tier, []).append(name)
    return dict(sorted(found.items()))


def _root_warnings(tree: Tree) -> list[str]:
    roots = sorted({tree.root_of(one) for one in tree.above.values()})
    if len(roots) < 2:
        return []
    return [f"{len(roots)} trees that nothing joins: {', '.join(roots[:_MOST_SHOWN])}"]


def _configurations(source: Source) -> list[dict[str, Any]]:
    """The documents, and those in the texts of a ConfigMap."""
    found = [one for one in values_of(source) if isinstance(one, dict)]
    for one in list(found):
        data = one.get("data")
        for text in data.values() if isinstance(data, dict) else ():
            if isinstance(text, str) and _DISCOVERY in text:
                found += [each for each in documents(text).values if isinstance(each, dict)]
    return found


def _discovery(source: Source) -> InvalidInput:
    """What a discovery configuration says, for the error that refuses it."""
    place = source.line_of(_DISCOVERY)
    sources, ladders = [], []
    for document in _configurations(source):
        for value in list_of(source, document.get(_DISCOVERY), _DISCOVERY):
            one = mapping_of(source, value, _DISCOVERY)
            state = "on" if one.get("enabled") is True else "off"
            sources.append(f"{one.get('source')} {state}")
            config = one.get("config")
            kinds = config.get("networkTopologyTypes") if isinstance(config, dict) else None
            for name, levels in kinds.items() if isinstance(kinds, dict) else ():
                keys = [
                    str(level.get("nodeLabel")).rpartition("/")[2]
                    for level in (levels if isinstance(levels, list) else ())
                    if isinstance(level, dict)
                ]
                ladders.append(f"{name} ({' > '.join(keys)})")
    found = (
        f"a configuration of how to discover a topology, not a topology: {len(sources)} sources "
        f"({', '.join(sources)}) and {len(ladders)} label ladders: {', '.join(ladders)}"
    )
    return source.refuse(place, found, "hand in kubectl get hypernodes -o yaml")


IMPORTERS: tuple[Importer, ...] = (
    Importer(NAME, "Volcano HyperNodes", "kubectl get hypernodes -o yaml", certainty, read),
)
