"""Neighbours that LLDP finds: the switch behind each interface of a host."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ..errors import Problem
from .facts import Facts, Network, TierFacts
from .network_summary import network_summary
from .reading import mapping_of, values_of
from .registry import Importer
from .source import Source
from .tier_names import tier_names

NAME = "lldp"
_FORWARDS = ("bridge", "router")
_RATE = re.compile(r"(\d{1,6})\s*(G?)(?=base)", re.I)


def certainty(source: Source) -> float:
    """How sure it is: the key lldp with interfaces."""
    value = source.json
    if value is None:
        cut = re.match(r"\s*\{\s*\"lldp\"\s*:", source.text)
        return 0.5 if cut else 0.0
    hosts = _hosts(source, value)
    return 0.95 if hosts else 0.0


def read(source: Source) -> Facts:
    """The switches of each host. Raises InvalidInput naming what cannot be used."""
    values_of(source)
    hosts = _hosts(source, source.json)
    if not hosts:
        raise source.refuse("", "no neighbours", "hand in lldpcli -f json show neighbors")
    neighbours: dict[str, list[dict[str, Any]]] = {
        host: _neighbours(source, host, told) for host, told in hosts.items()
    }
    warnings: list[str] = []
    leaf = tier_names(1)[0]
    domains: dict[str, dict[str, str]] = {}
    rates: list[float] = []
    for host, found in neighbours.items():
        switches = sorted({one["neighbour"] for one in found if one["switch"] is not False})
        domains[host] = {leaf: "+".join(switches)} if switches else {}
        rates += [
            one["bytes_per_s"] for one in found if one["switch"] is not False and one["bytes_per_s"]
        ]
        unsure = [one["interface"] for one in found if one["switch"] is None]
        if unsure:
            warnings.append(
                f"{host}: what is behind {', '.join(unsure[:6])} does not say what it can do; it "
                "is taken for a switch"
            )
    every = [one for found in neighbours.values() for one in found]
    placed = {host for host, has in domains.items() if has}
    summary = {
        "hosts": len(hosts),
        "neighbours": len(every),
        "switches": sorted({one["neighbour"] for one in every if one["switch"] is not False}),
        "neighbours_of_host": neighbours,
    }
    if not placed:
        told = ", ".join(
            f"{one['interface']} -> {one['neighbour']} port {one['port']}" for one in every[:6]
        )
        found_none = f"{len(every)} neighbours and none is a switch ({told or 'nothing'})"
        alone = Problem("", found_none, "collect it on hosts that are cabled to switches")
        return Facts(NAME, summary, not_alone=alone, warnings=tuple(warnings))
    tier = TierFacts(leaf, min(rates) if rates else None)
    network = Network((tier,), domains)
    return Facts(NAME, summary | network_summary(network), network, warnings=tuple(warnings))


def _hosts(source: Source, value: Any) -> dict[str, Any]:
    """What each host tells; a file of one host does not name it and is named as the file is."""
    if not isinstance(value, dict):
        return {}
    if _has_interfaces(value.get("lldp")):
        return {Path(source.name).stem or "host": value["lldp"]}
    found = {}
    for host, told in value.items():
        if isinstance(told, dict) and _has_interfaces(told.get("lldp")):
            found[str(host)] = told["lldp"]
    return found if len(found) == len(value) else {}


def _has_interfaces(value: Any) -> bool:
    if isinstance(value, list):
        return any(isinstance(one, dict) and "interface" in one for one in value)
    return isinstance(value, dict) and "interface" in value


def _neighbours(source: Source, host: str, told: Any) -> list[dict[str, Any]]:
    found = []
    for part in told if isinstance(told, list) else [told]:
        body = mapping_of(source, part, f"{host} lldp")
        for name, interface in _interfaces(source, host, body.get("interface")):
            found.append(_neighbour(source, f"{host} {name}", name, interface))
    return found


def _interfaces(source: Source, host: str, value: Any) -> list[tuple[str, dict[str, Any]]]:
    """Interfaces with their names in every form: by name, in a list, and each with its name."""
    found: list[tuple[str, dict[str, Any]]] = []
    for one in value if isinstance(value, list) else [value]:
        body = mapping_of(source, one, f"{host} interface")
        if isinstance(body.get("name"), str) and ("chassis" in body or "port" in body):
            found.append((body["name"], body))
            continue
        for name, inner in body.items():
            listed = inner if isinstance(inner, list) else [inner]
            found += [(str(name), mapping_of(source, each, f"{host} {name}")) for each in listed]
    return found


def _neighbour(source: Source, place: str, name: str, interface: dict[str, Any]) -> dict[str, Any]:
    chassis = _first(interface.get("chassis"))
    if isinstance(chassis, dict) and not {"id", "capability", "descr"} & chassis.keys():
        # Keyed by name where the neighbour has one.
        label, chassis = next(iter(chassis.items()), ("", {}))
        chassis = _first(chassis)
    else:
        label = _text(chassis.get("name")) if isinstance(chassis, dict) else ""
    body = mapping_of(source, chassis, f"{place} chassis")
    port = mapping_of(source, _first(interface.get("port")) or {}, f"{place} port")
    identity = _text(body.get("id"))
    neighbour = str(label) or identity
    if not neighbour:
        raise source.refuse(place, "a neighbour without a name or an id", "collect it again")
    return {
        "interface": name,
        "neighbour": neighbour,
        "port": _text(port.get("descr")) or _text(port.get("id")),
        "port_id": _text(port.get("id")),
        "chassis_id": identity,
        "switch": _forwards(body.get("capability")),
        "bytes_per_s": _rate(port),
    }


def _forwards(value: Any) -> bool | None:
    """Whether an ability to forward is enabled; None where no ability is told."""
    listed = value if isinstance(value, list) else [value]
    abilities = [one for one in listed if isinstance(one, dict)]
    if not abilities:
        return None
    return any(
        str(one.get("type", "")).lower() in _FORWARDS and one.get("enabled") in (True, "on")
        for one in abilities
    )


def _rate(port: dict[str, Any]) -> float | None:
    """Bytes/s of the rate that the neighbour's port runs at."""
    told = _first(port.get("auto-negotiation"))
    current = _text(told.get("current")) if isinstance(told, dict) else ""
    match = _RATE.search(current)
    if match is None or len(match[1]) > 6:
        return None
    return int(match[1]) * (1e9 if match[2] else 1e6) / 8


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else value


def _text(value: Any) -> str:
    """A value that json0 wraps into a list and an object."""
    one = _first(value)
    if isinstance(one, dict):
        one = one.get("value")
    return str(one) if isinstance(one, str | int) else ""


IMPORTERS: tuple[Importer, ...] = (
    Importer(NAME, "LLDP neighbours", "lldpcli -f json show neighbors", certainty, read),
)
