"""NetQ: the graph of switches and hosts, and the list of compute nodes with NVLink domains."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ..errors import Problem
from .facts import Facts, Machine, Network, TierFacts
from .network_summary import network_summary
from .reading import list_of, mapping_of, name_of, places_of, shown, values_of
from .registry import Importer
from .source import Source
from .switch_graph import Cable, levels, network_of
from .tier_names import NVLINK

GRAPH = "netq-topology-graph"
COMPUTE = "netq-compute-nodes"
_BETWEEN = "-*-"
_HOST_TIER = -1
_WELL = "HEALTHY"


def graph_certainty(source: Source) -> float:
    """How sure it is: nodes within tiers, links named after both ends."""
    text = source.text
    return 0.95 if '"compounded_nodes"' in text or '"compounded_links"' in text else 0.0


def compute_certainty(source: Source) -> float:
    """How sure it is: nodes with an NVLink domain and the GPUs of each."""
    return 0.95 if '"DomainUUID"' in source.text and '"Name"' in source.text else 0.0


def read_graph(source: Source) -> Facts:
    """The fabric of switches and hosts. Raises InvalidInput naming what cannot be used."""
    names: dict[str, str] = {}
    tier_of: dict[str, int] = {}
    cables: dict[frozenset[str], int] = {}
    warnings: list[str] = []
    for graph in _mappings(source, "graph"):
        for index, value in enumerate(list_of(source, graph.get("nodes"), "nodes")):
            tier = mapping_of(source, value, f"nodes[{index}]")
            for one in list_of(source, tier.get("compounded_nodes"), f"nodes[{index}]"):
                device = mapping_of(source, one, f"nodes[{index}].compounded_nodes")
                key = name_of(source, device.get("id"), f"nodes[{index}] id")
                level = device.get("tier", tier.get("tier"))
                if not isinstance(level, int) or isinstance(level, bool):
                    raise source.refuse(f"nodes[{index}] {key}", f"tier {shown(level)}", "a number")
                if key in names:
                    raise source.refuse(f"nodes[{index}]", f"{key!r} is there twice", "give one")
                names[key] = name_of(source, device.get("name", key), f"nodes[{index}] {key}")
                is_switch = device.get("device_type") == "switch"
                tier_of[key] = level if is_switch or level > _HOST_TIER else _HOST_TIER
        for index, value in enumerate(list_of(source, graph.get("links"), "links")):
            link = mapping_of(source, value, f"links[{index}]")
            ends = _ends(source, f"links[{index}]", link, names)
            cables[frozenset(ends)] = cables.get(frozenset(ends), 0) + _count(link)
    counts = Counter(names.values())
    called = {key: name if counts[name] == 1 else f"{name} {key}" for key, name in names.items()}
    hosts = {key: called[key] for key in names if tier_of[key] == _HOST_TIER}
    if not hosts or not cables:
        found = f"{len(hosts)} hosts and {len(cables)} links: no fabric"
        raise source.refuse("", found, "hand in the whole answer")
    joined = [
        Cable(hosts.get(a, a), hosts.get(b, b), None, count)
        for (a, b), count in ((sorted(pair), n) for pair, n in cables.items())
    ]
    network = network_of(list(hosts.values()), joined, called)
    level = levels(hosts.values(), joined)
    linked = {key for pair in cables for key in pair}
    lonely = [name for key, name in hosts.items() if key not in linked]
    if lonely:
        warnings.append(f"{len(lonely)} hosts have no link: {', '.join(lonely[:6])}")
    summary = {
        "hosts": len(hosts),
        "switches": len(names) - len(hosts),
        "switches_by_tier": dict(
            sorted(Counter(t for key, t in tier_of.items() if key not in hosts).items())
        ),
        "links": sum(cables.values()),
        "linked_pairs": len(cables),
        "tiers": max((level.get(key, 0) for key in names), default=0),
        **network_summary(network),
    }
    return Facts(GRAPH, summary, network, warnings=tuple(warnings))


def read_compute(source: Source) -> Facts:
    """NVLink domains, GPU counts and health of nodes. Raises InvalidInput."""
    domains: dict[str, str] = {}
    machines: dict[str, Machine] = {}
    places: dict[str, dict[str, Any]] = {}
    health: Counter[str] = Counter()
    warnings: list[str] = []
    seen: dict[str, str] = {}
    lines = places_of(source, r"\"Name\"\s*:\s*\"([^\"]+)\"")
    for index, node in enumerate(_mappings(source, "node")):
        name = name_of(source, node.get("Name"), f"[{index}] Name")
        place = lines.get(name, name)
        if name in machines:
            raise source.refuse(place, f"node {name!r} is listed twice", "keep the newer one")
        gpus = list_of(source, node.get("GpuIDList"), f"{place} GpuIDList")
        for gpu in gpus:
            known = seen.setdefault(name_of(source, gpu, f"{place} GpuIDList"), name)
            if known != name:
                found = f"GPU {gpu} is in {name!r} and in {known!r}"
                raise source.refuse(place, found, "ask NetQ again")
        state = str(node.get("Health") or "unknown")
        health[state] += 1
        ill = state.upper() not in (_WELL, "UNKNOWN")
        machines[name] = Machine(
            devices=len(gpus) if "GpuIDList" in node else None,
            faulty=f"NetQ says {state}" if ill else "",
        )
        if ill:
            warnings.append(f"{place}: {name} is {state}: it takes no work")
        domain = node.get("DomainUUID")
        if isinstance(domain, str) and domain.strip():
            domains[name] = domain.strip()
        else:
            warnings.append(f"{place}: {name} has no DomainUUID; its NVLink domain is unknown")
        places[name] = _location(node)
    if not machines:
        raise source.refuse("", "no node", "hand in the whole answer")
    network = Network(
        (TierFacts(NVLINK, scale_up=True),),
        {name: {NVLINK: domains[name]} if name in domains else {} for name in machines},
    )
    members = Counter(domains.values())
    of_domain: Counter[str] = Counter()
    for name, domain in domains.items():
        of_domain[domain] += machines[name].devices or 0
    summary = {
        "nodes": len(machines),
        "gpus": sum(machine.devices or 0 for machine in machines.values()),
        "health": dict(health),
        "nvlink_domains": len(members),
        "nodes_of_nvlink_domain": dict(members),
        "gpus_of_nvlink_domain": dict(of_domain),
        "location_of_node": places,
        "network_tiers": 0,
    }
    alone = Problem(
        "",
        f"{len(members)} NVLink domains of {len(machines)} nodes and no network between them",
        "hand in the fabric with it, such as NetQ's topology graph or ibnetdiscover",
    )
    return Facts(COMPUTE, summary, network, machines, not_alone=alone, warnings=tuple(warnings))


def _mappings(source: Source, what: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for value in values_of(source):
        listed = value if isinstance(value, list) else [value]
        found += [mapping_of(source, one, f"{what} {k}") for k, one in enumerate(listed)]
    return found


def _ends(
    source: Source, place: str, link: dict[str, Any], names: dict[str, str]
) -> tuple[str, str]:
    key = link.get("id")
    ends = key.split(_BETWEEN) if isinstance(key, str) else []
    if len(ends) != 2 and "src" in link and "target" in link:
        ends = [str(link["src"]), str(link["target"])]
    if len(ends) != 2 or ends[0] == ends[1]:
        raise source.refuse(place, f"{shown(key)} names no two ends", "hand in the whole answer")
    for end in ends:
        if end not in names:
            fix = "hand in the whole answer"
            raise source.refuse(place, f"the link ends at {end!r}, which is not listed", fix)
    return ends[0], ends[1]


def _count(link: dict[str, Any]) -> int:
    inner = link.get("compounded_links")
    if isinstance(inner, list) and inner:
        return len(inner)
    size = link.get("size")
    return size if isinstance(size, int) and 0 < size < 10_000 else 1


def _location(node: dict[str, Any]) -> dict[str, Any]:
    told = node.get("LocationInfo")
    if not isinstance(told, dict):
        return {}
    names = {"ChassisID": "chassis", "SlotID": "slot", "TrayIndex": "tray", "HostID": "host"}
    return {short: told[key] for key, short in names.items() if isinstance(told.get(key), int)}


IMPORTERS: tuple[Importer, ...] = (
    Importer(GRAPH, "NetQ topology graph", "NetQ's topology API", graph_certainty, read_graph),
    Importer(
        COMPUTE, "NetQ compute nodes", "NMX's compute-nodes API", compute_certainty, read_compute
    ),
)
