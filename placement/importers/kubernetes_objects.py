"""Kubernetes objects in a file of one or many documents."""

from __future__ import annotations

import re
from typing import Any

from .reading import mapping_of, shown, values_of
from .source import Source

HOLE = r"\$\{[^{}]*\}|\{\{[^{}]*\}\}"
"""A place that a template leaves to be filled, such as ${num_gpus} or {{ .Values.gpus }}."""


def objects_in(source: Source) -> list[dict[str, Any]]:
    """Every object, those of lists too. Raises InvalidInput for a document that is none."""
    found: list[dict[str, Any]] = []
    for index, document in enumerate(values_of(source), 1):
        value = mapping_of(source, document, f"document {index}")
        items = value.get("items")
        if isinstance(items, list) and str(value.get("kind", "List")).endswith("List"):
            found += [mapping_of(source, one, f"document {index} items") for one in items]
        else:
            found.append(value)
    return found


def group_of(value: dict[str, Any]) -> str:
    """The API group, also where the file calls it `version`."""
    return str(value.get("apiVersion", value.get("version", ""))).partition("/")[0]


def object_name(source: Source, value: dict[str, Any], what: str) -> str:
    """The name in the metadata, else beside it. Raises InvalidInput without one."""
    meta = value.get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else None
    name = value.get("name") if name is None else name
    if isinstance(name, int) and not isinstance(name, bool):
        name = str(name)
    if not isinstance(name, str) or not name.strip():
        raise source.refuse(what, f"a name that is {shown(name)}", "give metadata.name")
    return name.strip()


def holes_in(value: Any) -> list[str]:
    """Places that a template leaves to be filled, such as ${num_gpus}, each once."""
    found: dict[str, None] = {}
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            found |= dict.fromkeys(re.findall(HOLE, one))
        elif isinstance(one, dict):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            waiting += one
    return sorted(found)
