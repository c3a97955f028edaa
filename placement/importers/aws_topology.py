"""What `aws ec2 describe-instance-topology` says: the network nodes above each instance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from .facts import Facts, Machine, Network, TierFacts
from .instance_types import ULTRASERVER_PREFIXES, machine_of_type
from .ladders import Ladder, NotNested, ladder_of
from .network_summary import network_summary
from .reading import list_of, mapping_of, name_of, places_of, values_of
from .registry import Importer
from .source import Source
from .switch_graph import MOST_TIERS
from .tier_names import NVLINK, tier_names

NAME = "aws-instance-topology"
_NONE = ("", "null", "none")


def certainty(source: Source) -> float:
    """How sure it is: instances with network nodes."""
    return 0.95 if '"NetworkNodes"' in source.text or "NetworkNodes:" in source.text else 0.0


def read(source: Source) -> Facts:
    """Tiers from the network nodes, root first. Raises InvalidInput naming line and reason."""
    paths: dict[str, list[str]] = {}
    blocks: dict[str, str] = {}
    types: dict[str, str] = {}
    groups: set[str] = set()
    zones: Counter[str] = Counter()
    warnings: list[str] = []
    places = _places(source)
    for instance in _instances(source, warnings):
        name = name_of(source, instance.get("InstanceId"), "InstanceId")
        place = places.get(name, name)
        path = [
            name_of(source, node, f"{place} NetworkNodes")
            for node in list_of(source, instance.get("NetworkNodes"), f"{place} NetworkNodes")
        ]
        if name in paths:
            if paths[name] != path:
                found = f"instance {name} is listed twice with different network nodes"
                raise source.refuse(place, found, "keep the newer one")
            warnings.append(f"{place}: instance {name} is listed twice")
            continue
        if len(path) > MOST_TIERS:
            raise source.refuse(place, f"{len(path)} network nodes above {name}", "correct it")
        if len(set(path)) < len(path):
            raise source.refuse(place, f"{name} lies under {path} twice", "correct NetworkNodes")
        if not path:
            warnings.append(f"{place}: {name} has no network nodes and stands alone")
        paths[name] = path
        block = instance.get("CapacityBlockId")
        if isinstance(block, str) and block.strip().lower() not in _NONE:
            blocks[name] = block.strip()
        types[name] = _text(instance.get("InstanceType"))
        groups.add(_text(instance.get("GroupName")))
        zones[_text(instance.get("ZoneId"))] += 1
    if not paths:
        raise source.refuse("", "no instance", "ask for instances of a type that has a topology")
    ladder = _ladder(source, paths)
    network = _with_ultraservers(ladder.network, blocks, types)
    summary: dict[str, Any] = {
        "instances": len(paths),
        "tiers": max(len(path) for path in paths.values()),
        "switches": len({node for path in paths.values() for node in path}),
        "roots": list(dict.fromkeys(path[0] for path in paths.values() if path)),
        "leaf_of_instance": {name: path[-1] for name, path in paths.items() if path},
        "instance_types": dict(Counter(filter(None, types.values()))),
        "capacity_blocks": sorted(set(blocks.values())),
        "placement_groups": sorted(groups - {""}),
        "zones": {zone: count for zone, count in zones.items() if zone},
        **network_summary(network),
    }
    if any(ladder.warnings):
        summary["order"] = "leaf first"
        summary["roots"] = list(dict.fromkeys(path[-1] for path in paths.values() if path))
        summary["leaf_of_instance"] = {name: path[0] for name, path in paths.items() if path}
    machines: dict[str, Machine] = {
        name: machine for name in paths if (machine := machine_of_type(types[name]))
    }
    return Facts(
        NAME,
        summary,
        network,
        machines,
        warnings=(*ladder.warnings, *_tree_warnings(summary["roots"]), *warnings),
    )


def _places(source: Source) -> dict[str, str]:
    return places_of(source, r"InstanceId\"?\s*:\s*\"?([^\"\s,]+)")


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def _instances(source: Source, warnings: list[str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for value in values_of(source):
        page = value.get("Instances", value) if isinstance(value, dict) else value
        if isinstance(value, dict) and value.get("NextToken"):
            place = source.line_of('"NextToken"')
            warnings.append(f"{place}: there are more pages; the other instances are not in")
        if isinstance(page, dict):
            page = [page]
        listed = list_of(source, page, "Instances")
        found += [mapping_of(source, one, f"Instances[{i}]") for i, one in enumerate(listed)]
    return found


def _ladder(source: Source, paths: Mapping[str, Sequence[str]]) -> Ladder:
    depth = max(len(path) for path in paths.values())
    names = tier_names(depth)
    values = {
        # The last is the leaf; a shorter path lacks the outermost rungs.
        name: dict(zip(names, reversed(path), strict=False))
        for name, path in paths.items()
    }
    try:
        return ladder_of(names, values, names)
    except NotNested as error:
        place = _places(source).get(error.nodes[1], error.nodes[1])
        raise source.refuse(place, str(error), "ask again; the answers contradict") from error


def _with_ultraservers(
    network: Network, blocks: Mapping[str, str], types: Mapping[str, str]
) -> Network:
    joined = {
        name: block
        for name, block in blocks.items()
        if types.get(name, "").startswith(ULTRASERVER_PREFIXES)
    }
    if not joined:
        return network
    domains = {
        name: {**({NVLINK: joined[name]} if name in joined else {}), **has}
        for name, has in network.domains.items()
    }
    tier = TierFacts(NVLINK, scale_up=True)
    return Network((tier, *network.tiers), domains, network.spine)


def _tree_warnings(roots: Sequence[str]) -> list[str]:
    if len(roots) < 2:
        return []
    shown = ", ".join(roots[:6])
    return [f"{len(roots)} trees that nothing joins: {shown}"]


IMPORTERS: tuple[Importer, ...] = (
    Importer(
        NAME,
        "AWS instance topology",
        "aws ec2 describe-instance-topology",
        certainty,
        read,
    ),
)
