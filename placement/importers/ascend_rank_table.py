"""Ascend rank tables (versions 1.0 and 1.2, and the older hccl.json): servers and their devices."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any

from ..quantities import MOST_DEVICES_A_NODE
from .facts import Facts, Machine, Network, TierFacts
from .registry import Importer
from .source import Source

_WHOLE = re.compile(r"\d{1,9}")
_VERSIONS = ("1.0", "1.1", "1.2")
_MOST_PROBLEMS = 8


def _certainty(source: Source) -> float:
    table = _table(source.json)
    if table is None:
        return 0.0
    return 0.9 if "server_list" in table or "server_count" in table else 0.7


def _table(data: Any) -> Mapping[str, Any] | None:
    """The rank table of a JSON value, whatever it is wrapped in; None where it is none."""
    if isinstance(data, dict):
        inner = data.get("RankTable", data)
        if isinstance(inner, dict):
            servers = inner.get("server_list")
            if isinstance(servers, list) and servers:
                return inner if _servers_look_right(servers) else None
            groups = inner.get("group_list")
            if isinstance(groups, list) and any(
                isinstance(group, dict) and "instance_list" in group for group in groups
            ):
                return inner
    return None


def _servers_look_right(servers: list[Any]) -> bool:
    return all(isinstance(one, dict) and "device" in one for one in servers)


def _read(source: Source) -> Facts:
    table = _table(source.json)
    if table is None:
        found = "no server_list with devices and no group_list with instances"
        raise source.refuse("", found, "hand in the rank table (RANK_TABLE_FILE)")
    status = table.get("status")
    if status is not None and str(status) not in ("completed", "complete"):
        found = f"the table is {str(status)!r}, not completed"
        fix = "wait until the table is completed and hand it in again"
        raise source.refuse(source.line_of('"status"') or "status", found, fix)
    version = str(table.get("version", "1.0" if "server_list" in table else "0.1"))
    if "server_list" in table and version not in _VERSIONS:
        found = f"version {version!r}; {', '.join(_VERSIONS)} are read"
        raise source.refuse(source.line_of('"version"') or "version", found, "convert it")
    servers = _servers(source, table)
    _check(source, table, servers)
    return _facts(source, table, version, servers)


def _servers(source: Source, table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Servers with their devices: `{name, devices: [(device, rank, address)], host_address}`."""
    if "server_list" in table:
        return [
            _server(source, f"server_list[{i}]", one, one.get("device"))
            for i, one in enumerate(table["server_list"])
        ]
    found = []
    for g, group in enumerate(table["group_list"]):
        instances = group.get("instance_list") if isinstance(group, dict) else None
        for i, one in enumerate(instances if isinstance(instances, list) else []):
            place = f"group_list[{g}].instance_list[{i}]"
            if not isinstance(one, dict):
                raise source.refuse(place, "no instance", "hand in the table as it was written")
            found.append(_server(source, place, one, one.get("devices")))
    merged: dict[str, dict[str, Any]] = {}
    for server in found:
        known = merged.setdefault(server["name"], {**server, "devices": []})
        known["devices"] += server["devices"]
    return list(merged.values())


def _server(source: Source, place: str, one: Mapping[str, Any], devices: Any) -> dict[str, Any]:
    name = one.get("server_id")
    if not isinstance(name, str | int) or isinstance(name, bool) or not str(name).strip():
        raise source.refuse(f"{place}.server_id", "a server without a name", "give it one")
    if not isinstance(devices, list) or not devices:
        raise source.refuse(place, f"server {name} without devices", "hand in the whole table")
    if len(devices) > MOST_DEVICES_A_NODE:
        found = f"{len(devices)} devices; a node has at most {MOST_DEVICES_A_NODE}"
        raise source.refuse(place, found, "hand in the table as it was written")
    told = []
    for d, device in enumerate(devices):
        here = f"{place}.device[{d}]"
        if not isinstance(device, dict):
            raise source.refuse(here, "no device", "hand in the table as it was written")
        number = _whole(device.get("device_id"))
        rank = _whole(device.get("rank_id", one.get("rank_id") if len(devices) == 1 else None))
        if number is None:
            found = f"device_id {device.get('device_id')!r}"
            raise source.refuse(here, found, "give each device its number")
        told.append((number, rank, _ip(device.get("device_ip"))))
    host = one.get("host_ip", one.get("host_nic_ip"))
    return {"name": str(name).strip(), "devices": told, "host_address": _ip(host)}


def _whole(value: Any) -> int | None:
    text = str(value).strip() if isinstance(value, str | int) and value is not True else ""
    return int(text) if _WHOLE.fullmatch(text) else None


def _ip(value: Any) -> str | None:
    """An address; None for words such as `reserve` that stand where none is known."""
    try:
        return str(ipaddress.ip_address(str(value).strip()))
    except ValueError:
        return None


def _check(source: Source, table: Mapping[str, Any], servers: list[dict[str, Any]]) -> None:
    fix = "hand in the whole table"
    count = _whole(table.get("server_count"))
    if count is not None and count != len(servers):
        found = f"server_count is {count}, but {len(servers)} servers are listed"
        raise source.refuse(source.line_of('"server_count"'), found, fix)
    if not servers:
        raise source.refuse("server_list", "no server", fix)
    names = [server["name"] for server in servers]
    twice = (
        next((name for name in names if names.count(name) > 1), None)
        if len(set(names)) < len(names)
        else None
    )
    if twice is not None:
        raise source.refuse("server_list", f"server {twice} is there twice", fix)
    for server in servers:
        numbers = [number for number, _, _ in server["devices"]]
        if len(set(numbers)) < len(numbers):
            raise source.refuse(f"server {server['name']}", "a device is there twice", fix)
    ranks = [rank for server in servers for _, rank, _ in server["devices"]]
    known = [rank for rank in ranks if rank is not None]
    if known and sorted(known) != list(range(len(ranks))):
        missing = sorted(set(range(len(ranks))) - set(known))[:_MOST_PROBLEMS]
        found = f"{len(ranks)} devices, but not ranks 0 to {len(ranks) - 1} once each"
        lacking = f"; missing: {', '.join(map(str, missing))}" if missing else ""
        raise source.refuse("rank_id", found + lacking, "give each device its own rank")


def _facts(
    source: Source, table: Mapping[str, Any], version: str, servers: list[dict[str, Any]]
) -> Facts:
    addresses = [ip for server in servers for _, _, ip in server["devices"]]
    known = all(ip is not None for ip in addresses)
    pods = _super_pods(source, table, servers)
    not_told = ["links between the devices", "kind of the devices"]
    not_told += [] if known else ["addresses of the devices: no plan of connections can be made"]
    summary: dict[str, Any] = {
        "version": version,
        "servers": len(servers),
        "devices": len(addresses),
        "devices_per_server": {server["name"]: len(server["devices"]) for server in servers},
        "ranks": {server["name"]: [r for _, r, _ in server["devices"]] for server in servers},
        "addresses": {server["name"]: [ip for _, _, ip in server["devices"]] for server in servers},
        "host_addresses": {server["name"]: server["host_address"] for server in servers},
        "addresses_known": known,
        "usable_for": "shape and connections" if known else "shape only",
        "super_pods": len(set(pods.values())) or None,
        "not_told": not_told,
    }
    network = None
    if pods:
        tier = TierFacts("super-pod", scale_up=True)
        domains = {name: {"super-pod": pod} for name, pod in pods.items()}
        network = Network((tier,), domains)
    warnings = []
    if not known:
        line = source.line_of('"device"') or source.line_of('"devices"')
        warnings.append(
            f"{line}: addresses of devices are unknown: the table gives the shape of the job, "
            "connections cannot be planned from it"
        )
    machines = {server["name"]: Machine(devices=len(server["devices"])) for server in servers}
    return Facts("ascend-rank-table", summary, network, machines, warnings=tuple(warnings))


def _super_pods(
    source: Source, table: Mapping[str, Any], servers: list[dict[str, Any]]
) -> dict[str, str]:
    """Each server's super pod, by version 1.2; empty where the table has none."""
    names = {server["name"] for server in servers}
    found: dict[str, str] = {}
    pods = table.get("super_pod_list")
    for p, pod in enumerate(pods if isinstance(pods, list) else []):
        held = pod.get("server_list") if isinstance(pod, dict) else None
        for one in held if isinstance(held, list) else []:
            name = str(one.get("server_id")) if isinstance(one, dict) else ""
            if name not in names:
                place = f"super_pod_list[{p}]"
                raise source.refuse(place, f"server {name!r} is not listed", "hand in the table")
            found[name] = f"super-pod-{pod.get('super_pod_id', p)}"
    return found


IMPORTERS: tuple[Importer, ...] = (
    Importer(
        name="ascend-rank-table",
        title="Ascend rank table",
        produced_by="RANK_TABLE_FILE of a job (hccl_tools.py or the Ascend device plugin)",
        certainty=_certainty,
        read=_read,
    ),
)
