"""Lists of instances with the switches above each, the nearest first: topograph's and Lambda's."""

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
from .switch_graph import MOST_TIERS
from .tier_names import tier_names

NAME = "topograph-output"
_KEYS = ("network_layers", "networkLayers", "NetworkLayers", "networkPath", "network_node_path")
_LISTS = ("instances", "data", "results")
_IDS = ("id", "instance_id")
_PAGES = ("page_token", "next_page_token", "nextPageToken")
_DOMAIN = re.compile(r"^accelerator\.[a-z.]+/domain$|^nvidia\.com/gpu\.clique$")
_SUB_DOMAIN = re.compile(r"^accelerator\.[a-z.]+/sub-domain$")


def certainty(source: Source) -> float:
    """How sure it is: instances with network layers."""
    return 0.95 if any(key in source.text for key in _KEYS) else 0.0


def read(source: Source) -> Facts:
    """Tiers and accelerator domains. Raises InvalidInput naming line and reason."""
    places = places_of(source, r"\b(?:instance_)?id\"?\s*:\s*\"?([^\"\s,]+)")
    layers: dict[str, list[str]] = {}
    domains: dict[str, str] = {}
    parts: dict[str, str] = {}
    labels: dict[str, dict[str, str]] = {}
    more: list[str] = []
    for document in values_of(source):
        listed: Any = document
        if isinstance(document, dict):
            listed = next((document[key] for key in _LISTS if key in document), None)
            if any(document.get(key) for key in _PAGES):
                more.append("there are more pages; the other instances are not in")
        for index, value in enumerate(list_of(source, listed, "instances")):
            instance = mapping_of(source, value, f"instances[{index}]")
            identity = next((instance[key] for key in _IDS if key in instance), None)
            name = name_of(source, identity, f"instances[{index}].id")
            place = places.get(name, name)
            if name in layers:
                raise source.refuse(place, f"instance {name!r} is listed twice", "list it once")
            path = next((instance[key] for key in _KEYS if key in instance), None)
            layers[name] = [
                name_of(source, one.get("id") if isinstance(one, dict) else one, place)
                for one in list_of(source, path, place)
            ]
            if len(layers[name]) > MOST_TIERS:
                found = f"{len(layers[name])} layers above {name!r}"
                raise source.refuse(place, found, f"at most {MOST_TIERS} are read")
            if len(set(layers[name])) < len(layers[name]):
                raise source.refuse(place, f"a switch is twice above {name!r}", "list it once")
            labels[name] = {
                str(key): str(label).strip()
                for key, label in mapping_of(source, instance.get("labels") or {}, place).items()
            }
            link = instance.get("nvlink")
            if isinstance(link, dict) and link.get("domain_id") and link.get("clique_id"):
                domains[name] = f"{link['domain_id']}.{link['clique_id']}"
            for key, label in labels[name].items():
                if _DOMAIN.match(key):
                    domains[name] = label
                elif _SUB_DOMAIN.match(key):
                    parts[name] = label
    if not layers:
        raise source.refuse("", "no instance", "hand in the whole answer of topograph")
    depth = max(len(above) for above in layers.values())
    tiers = tier_names(depth)
    values = {name: dict(zip(tiers, above, strict=False)) for name, above in layers.items()}
    try:
        ladder = ladder_of(tiers, values, tiers)
    except NotNested as error:
        place = places.get(error.nodes[1], error.nodes[1])
        raise source.refuse(place, str(error), "ask topograph again") from error
    network, wide = with_accelerator_domains(ladder.network, domains, parts)
    summary: dict[str, Any] = {
        "instances": len(layers),
        "tiers": depth,
        "layers_of_instance": layers,
        "accelerator_domain_of_instance": domains,
        "accelerator_sub_domain_of_instance": parts,
        "labels": labels,
        **network_summary(network),
    }
    warnings = [*more, *ladder.warnings, *wide]
    bare = [name for name, above in layers.items() if not above]
    if bare:
        shown = ", ".join(bare[:6])
        warnings.append(f"{len(bare)} instances have no layers and stand alone: {shown}")
    if len(layers) == 1:
        warnings.append("a cluster of one node: no traffic leaves it")
    return Facts(NAME, summary, network, warnings=tuple(warnings))


IMPORTERS: tuple[Importer, ...] = (
    Importer(
        NAME,
        "instances with the switches above them",
        "topograph's graph engine, or Lambda's topology API",
        certainty,
        read,
    ),
)
