"""Gaudi's HCL configuration (HCL_CONFIG_PATH): a type of box and how many devices take part."""

from __future__ import annotations

import re
from typing import Any

from ..errors import Problem
from ..quantities import MOST_RANKS
from .facts import ANY_NODE, Facts, Machine
from .registry import Importer
from .source import Source

BOXES: dict[str, tuple[str, int]] = {
    "HLS1": ("Gaudi", 8),
    "HLS1-H": ("Gaudi", 4),
    "HLS2": ("Gaudi2", 8),
    "HLS3": ("Gaudi3", 8),
}
"""Accelerator and devices of a box by its HCL_TYPE. Its links are implied, not in the file."""
_KEYS = ("HCL_TYPE", "HCL_COUNT", "HCL_RANKS", "HCL_PORT")


def _certainty(source: Source) -> float:
    data = source.json
    known = isinstance(data, dict) and any(key in data for key in _KEYS[:3])
    return 0.95 if known else 0.0


def _read(source: Source) -> Facts:
    data = source.json
    if not isinstance(data, dict):
        raise source.refuse("", "no JSON object", "hand in the file of HCL_CONFIG_PATH")
    kind = data.get("HCL_TYPE")
    if not isinstance(kind, str) or not kind.strip():
        place = source.line_of('"HCL_TYPE"') or "HCL_TYPE"
        found = f"HCL_TYPE is {kind!r}"
        raise source.refuse(place, found, f"give the type of box: {', '.join(BOXES)}")
    kind = kind.strip().upper()
    box = BOXES.get(kind)
    if box is None:
        place = source.line_of('"HCL_TYPE"')
        raise source.refuse(place, f"HCL_TYPE {kind!r}", f"the types are {', '.join(BOXES)}")
    hosts = _hosts(source, data.get("HCL_RANKS"))
    count = _count(source, data, hosts)
    per_node = hosts or _filled(count, box[1])
    machines = {name: Machine(box[0], devices) for name, devices in (hosts or {}).items()}
    if not hosts and len(per_node) == 1:
        machines = {ANY_NODE: Machine(box[0], count)}
    summary: dict[str, Any] = {
        "nodes": len(per_node),
        "type": kind,
        "accelerator": box[0],
        "accelerators": count,
        "accelerators_per_node": list(per_node.values()),
        "port": data.get("HCL_PORT") if isinstance(data.get("HCL_PORT"), int) else None,
        "not_told": [f"links: the file implies those of a box of type {kind}"],
    }
    warnings = []
    if any(devices > box[1] for devices in per_node.values()):
        warnings.append(
            f"{source.line_of('HCL_')}: a node has more devices than the {box[1]} of {kind}"
        )
    return Facts(
        "gaudi-hcl",
        summary,
        machines=machines,
        not_alone=Problem(
            source.line_of('"HCL_TYPE"'),
            f"links are not in the file: they are implied by HCL_TYPE {kind}",
            f"confirm the template of {kind} (--accelerator {box[0]} --devices {box[1]}), or add a "
            "file that describes the links",
        ),
        warnings=tuple(warnings),
    )


def _hosts(source: Source, ranks: Any) -> dict[str, int] | None:
    """Devices by address, where the file lists the address of each rank; else None."""
    if ranks is None:
        return None
    place = source.line_of('"HCL_RANKS"')
    if not isinstance(ranks, list) or not ranks or not all(isinstance(r, str) for r in ranks):
        raise source.refuse(place, "HCL_RANKS is no list of addresses", "give one a rank")
    found: dict[str, int] = {}
    for rank in ranks:
        name = rank.strip()
        if not re.fullmatch(r"[\w.:-]{1,255}", name):
            raise source.refuse(place, f"an address {name[:60]!r}", "give addresses or names")
        found[name] = found.get(name, 0) + 1
    return found


def _count(source: Source, data: dict[str, Any], hosts: dict[str, int] | None) -> int:
    value = data.get("HCL_COUNT")
    listed = sum(hosts.values()) if hosts else None
    if value is None and listed is not None:
        return listed
    text = str(value).strip() if isinstance(value, int | str) and value is not True else ""
    place = source.line_of('"HCL_COUNT"') or "HCL_COUNT"
    if not re.fullmatch(r"\d{1,9}", text) or not 0 < int(text) <= MOST_RANKS:
        raise source.refuse(place, f"HCL_COUNT is {value!r}", "give the number of devices")
    if listed is not None and int(text) != listed:
        found = f"HCL_COUNT is {text}, but HCL_RANKS has {listed}"
        raise source.refuse(place, found, "correct one of them")
    return int(text)


def _filled(count: int, box: int) -> dict[str, int]:
    """Devices of each box when boxes are filled one after the other."""
    whole, rest = divmod(count, box)
    sizes = [box] * min(whole, MOST_RANKS // box) + ([rest] if rest else [])
    return {str(i): size for i, size in enumerate(sizes)}


IMPORTERS: tuple[Importer, ...] = (
    Importer(
        name="gaudi-hcl",
        title="Gaudi HCL configuration",
        produced_by="the file of HCL_CONFIG_PATH",
        certainty=_certainty,
        read=_read,
    ),
)
