"""Names of nodes and domains that a cluster file can hold."""

from __future__ import annotations

from collections.abc import Callable

from ..quantities import LONGEST_NAME
from .facts import ANY_NODE, Facts
from .source import Source


def with_usable_names(read: Callable[[Source], Facts]) -> Callable[[Source], Facts]:
    """A reader that refuses what another one read under names that no cluster file can hold."""

    def read_checked(source: Source) -> Facts:
        facts = read(source)
        network = facts.network
        names = {name for name in facts.machines if name != ANY_NODE}
        for node, domains in network.domains.items() if network else ():
            names.add(node)
            names.update(domains.values())
        for name in names:
            if not name or len(name) > LONGEST_NAME or not name.isprintable():
                found = f"{name[:60]!r} is no name of a node or domain"
                fix = f"use 1 to {LONGEST_NAME} printable characters"
                raise source.refuse(source.line_of(name) if name else "", found, fix)
            if name != name.strip():
                found = f"the name {name[:60]!r} has blanks at its ends"
                raise source.refuse(source.line_of(name), found, "remove them")
        return facts

    return read_checked
