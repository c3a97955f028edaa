"""Kueue's Topology objects: ladders of node labels, and the quotas that use them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from ..errors import Problem
from .facts import Facts
from .kubernetes_objects import HOLE, group_of, holes_in, object_name, objects_in
from .label_ladders import HOSTNAME_KEY
from .reading import list_of, mapping_of, name_of, places_of
from .registry import Importer
from .source import Source

NAME = "kueue-topology"
_GROUP = "kueue.x-k8s.io"
_KIND = re.compile(r"kind[\"']?\s*:\s*[\"']?(Topology|ResourceFlavor|ClusterQueue)\b")


def certainty(source: Source) -> float:
    """How sure it is: an object of Kueue's group of a kind that tells of levels or quotas."""
    return 0.9 if _GROUP in source.text and _KIND.search(source.text) else 0.0


def read(source: Source) -> Facts:
    """Levels and quotas; the nodes are not in such a file. Raises InvalidInput."""
    topologies: dict[str, list[str]] = {}
    flavors: dict[str, dict[str, Any]] = {}
    quotas: dict[str, dict[str, Any]] = {}
    priorities: dict[str, int] = {}
    kinds: dict[str, int] = {}
    holes: dict[str, str] = {}
    warnings: list[str] = []
    objects = objects_in(source)
    hole_lines = places_of(source, f"({HOLE})")
    for index, value in enumerate(objects, 1):
        kind = str(value.get("kind", ""))
        kinds[kind] = kinds.get(kind, 0) + 1
        holes |= {hole: hole_lines.get(hole, "") for hole in holes_in(value)}
        if not kind:
            raise source.refuse(f"document {index}", "an object without a kind", "give its kind")
        name = object_name(source, value, f"document {index} ({kind})")
        if kind == "PriorityClass" and isinstance(value.get("value"), int):
            priorities[name] = value["value"]
        if group_of(value) != _GROUP:
            continue
        spec = mapping_of(source, value.get("spec") or {}, f"{kind} {name} spec")
        if kind == "Topology":
            if name in topologies:
                raise source.refuse(f"document {index}", f"Topology {name!r} again", "keep one")
            topologies[name] = _levels(source, name, spec, warnings)
        elif kind == "ResourceFlavor":
            flavors[name] = {
                "topology": _name_in(source, spec, f"ResourceFlavor {name}"),
                "node_labels": _plain(spec.get("nodeLabels")),
            }
        elif kind == "ClusterQueue":
            quotas[name] = _quotas(source, name, spec)
    if not topologies:
        raise source.refuse("", "no Topology object", "hand in the file that holds it")
    for name, flavor in flavors.items():
        used = flavor["topology"]
        if used is not None and used not in topologies:
            warnings.append(f"flavor {name!r} uses topology {used!r}, which is not in the file")
    for hole, line in holes.items():
        warnings.append(f"{line}: {hole} is a place of a template that is not filled in")
    summary: dict[str, Any] = {
        "documents": len(objects),
        "kinds": kinds,
        "topologies": topologies,
        "levels": {name: len(levels) for name, levels in topologies.items()},
        "flavors": flavors,
        "quotas": quotas,
        "gpu_quota": _gpu_quota(quotas),
        "priority_classes": priorities,
        "unresolved": list(holes),
    }
    levels = next(iter(topologies.values()))
    alone = Problem(
        "",
        f"levels of nodes as label keys ({' > '.join(levels)}) and no nodes",
        "hand in the output of kubectl get nodes -o json with it",
    )
    ladders = {name: tuple(keys) for name, keys in topologies.items()}
    return Facts(NAME, summary, not_alone=alone, label_levels=ladders, warnings=tuple(warnings))


def _levels(source: Source, name: str, spec: Mapping[str, Any], warnings: list[str]) -> list[str]:
    """Label keys, the outermost first."""
    found = []
    for index, value in enumerate(list_of(source, spec.get("levels"), f"Topology {name}")):
        place = f"Topology {name} levels[{index}]"
        level = mapping_of(source, value, place)
        found.append(name_of(source, level.get("nodeLabel"), place))
    if not found:
        raise source.refuse(f"Topology {name}", "no levels", "give spec.levels")
    if len(set(found)) < len(found):
        raise source.refuse(f"Topology {name}", "a level is given twice", "give each once")
    if HOSTNAME_KEY in found[:-1]:
        warnings.append(f"Topology {name!r}: {HOSTNAME_KEY} is not the last level")
    return found


def _name_in(source: Source, spec: Mapping[str, Any], place: str) -> str | None:
    """The topology of a flavor; None where it uses none."""
    value = spec.get("topologyName")
    return None if value is None else name_of(source, value, f"{place} topologyName")


def _quotas(source: Source, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """`[flavor][resource]` quota; a number as a number, an amount with its unit as text."""
    found: dict[str, Any] = {}
    place = f"ClusterQueue {name}"
    for group in list_of(source, spec.get("resourceGroups"), place):
        for one in list_of(source, mapping_of(source, group, place).get("flavors"), place):
            flavor = mapping_of(source, one, place)
            quota: dict[str, Any] = {}
            for each in list_of(source, flavor.get("resources"), place):
                resource = mapping_of(source, each, place)
                label = name_of(source, resource.get("name"), place)
                quota[label] = _quantity(resource.get("nominalQuota"))
            found[name_of(source, flavor.get("name"), place)] = quota
    return found


def _quantity(value: Any) -> Any:
    if holes_in(value):
        return f"unresolved: {value}"
    if isinstance(value, str) and re.fullmatch(r"\d{1,15}", value):
        return int(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, int | float | str) else None


def _gpu_quota(quotas: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Any:
    found = [
        amount
        for flavors in quotas.values()
        for resources in flavors.values()
        for resource, amount in resources.items()
        if "gpu" in resource or "gaudi" in resource
    ]
    if not found:
        return "none"
    return sum(found) if all(isinstance(one, int) for one in found) else found


def _plain(value: Any) -> dict[str, str]:
    return {str(k): str(v) for k, v in value.items()} if isinstance(value, dict) else {}


IMPORTERS: tuple[Importer, ...] = (
    Importer(
        NAME,
        "Kueue Topology",
        "kubectl get topologies.kueue.x-k8s.io -o yaml",
        certainty,
        read,
    ),
)
