"""Names of nodes and domains: their order, a few of many, and one for a node of unknown domain."""

from __future__ import annotations

import re
from collections.abc import Sequence

Natural = tuple[tuple[bool, int, str], ...]
_NUMBER = re.compile(r"(\d+)")


def natural(name: str) -> Natural:
    """A key by which numbers in names count as numbers: n10 follows n9."""
    parts = [part for part in _NUMBER.split(name) if part]
    return tuple(
        (False, int(part), part) if part.isdecimal() else (True, 0, part) for part in parts
    )


def some(names: Sequence[str], most: int = 5) -> str:
    """The first `most` names for a message, and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def lone_domain(node: str, taken: set[str]) -> str:
    """A domain for a node that shares none that is known, unlike all `taken`, to which it is added.

    Nodes of unknown domain are each alone, never in one domain of unknown ones.
    """
    domain = f"only-{node}"
    while domain in taken:
        domain += "-"
    taken.add(domain)
    return domain
