"""Topograph's list of instances, each with the switches above it, the nearest first."""

from __future__ import annotations

import re
from typing import Any

from .accelerator_domains import with_accelerator_domains
from .facts import Facts
from .ladders import NotNested, ladder_of
from .network_summary import network_summary
from .reading import list_of, mapping_of, name_of, places_of, values_of
from .registry import Importer
from .source import Source
from .tier_names import tier_names

NAME = "topograph-output"
_KEYS = ("network_layers", "networkLayers", "NetworkLayers")
_DOMAIN = re.compile(r"^accelerator\.[a-z.]+/domain$|^nvidia\.com/gpu\.clique$")
_SUB_DOMAIN = re.compile(r"^accelerator\.[a-z.]+/sub-domain$")


def certainty(source: Source) -> float:
    """How sure it is: instances with network layers."""
    return 0.95 if any(key in source.text for key in _KEYS) else 0.0


def read(source: Source) -> Facts:
    """Tiers and accelerator domains. Raises InvalidInput naming line and reason."""
    places = places_of(source, r"\bid\"?\s*:\s*\"?([^\"\s,]+)")
    layers: dict[str, list[str]] = {}
    domains: dict[str, str] = {}
    parts: dict[str, str] = {}
    labels: dict[str, dict[str, str]] = {}
    for document in values_of(source):
        listed = document.get("instances") if isinstance(document, dict) else document
        for index, value in enumerate(list_of(source, listed, "instances")):
            instance = mapping_of(source, value, f"instances[{index}]")
            name = name_of(source, instance.get("id"), f"instances[{index}].id")
            place = places.get(name, name)
            if name in layers:
                raise source.refuse(place, f"instance {name!r} is listed twice", "list it once")
            path = next((instance[key] for key in _KEYS if key in instance), None)
            layers[name] = [name_of(source, one, place) for one in list_of(source, path, place)]
            if len(set(layers[name])) < len(layers[name]):
                raise source.refuse(place, f"a switch is twice above {name!r}", "list it once")
            labels[name] = {
                str(key): str(label)
                for key, label in mapping_of(source, instance.get("labels") or {}, place).items()
            }
            for key, label in labels[name].items():
                if _DOMAIN.match(key):
                    domains[name] = label
                elif _SUB_DOMAIN.match(key):
                    parts[name] = label
    if not layers:
        raise source.refuse("", "no instance", "hand in the whole answer of topograph")
    depth = max(len(path) for path in layers.values())
    names = tier_names(depth)
    values = {name: dict(zip(names, path, strict=False)) for name, path in layers.items()}
    try:
        ladder = ladder_of(names, values, names)
    except NotNested as error:
        place = places.get(error.nodes[1], error.nodes[1])
        raise source.refuse(place, str(error), "ask topograph again") from error
    network, found = with_accelerator_domains(ladder.network, domains, parts)
    summary: dict[str, Any] = {
        "instances": len(layers),
        "tiers": depth,
        "layers_of_instance": layers,
        "accelerator_domain_of_instance": domains,
        "accelerator_sub_domain_of_instance": parts,
        "labels": labels,
        **network_summary(network),
    }
    warnings = [*ladder.warnings, *found]
    bare = [name for name, path in layers.items() if not path]
    if bare:
        shown = ", ".join(bare[:6])
        warnings.append(f"{len(bare)} instances have no layers and stand alone: {shown}")
    if len(layers) == 1:
        warnings.append("a cluster of one node: no traffic leaves it")
    return Facts(NAME, summary, network, warnings=tuple(warnings))


IMPORTERS: tuple[Importer, ...] = (
    Importer(NAME, "topograph's instances", "topograph's graph engine", certainty, read),
)
