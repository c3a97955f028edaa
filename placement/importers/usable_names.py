"""Names of nodes, domains and kinds that a cluster file can hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec

from ..quantities import LONGEST_NAME
from .facts import ANY_NODE, Facts
from .source import Source

Others = ParamSpec("Others")


def with_usable_names(
    read: Callable[Concatenate[Source, Others], Facts],
) -> Callable[Concatenate[Source, Others], Facts]:
    """A reader that refuses what another one read under names that no cluster file can hold."""

    def read_checked(source: Source, /, *args: Others.args, **kwargs: Others.kwargs) -> Facts:
        facts = read(source, *args, **kwargs)
        network = facts.network
        names = {name for name in facts.machines if name != ANY_NODE}
        names |= {each.accelerator for each in facts.machines.values() if each.accelerator}
        names |= {tier.name for tier in network.tiers} if network else set()
        for node, domains in network.domains.items() if network else ():
            names.add(node)
            names.update(domains.values())
        for name in names:
            if not name or len(name) > LONGEST_NAME or not name.isprintable():
                found = f"{name[:60]!r} is no name of a node, tier, domain or kind"
                fix = f"use 1 to {LONGEST_NAME} printable characters"
                raise source.refuse(source.line_of(name) if name else "", found, fix)
            if name != name.strip():
                found = f"the name {name[:60]!r} has blanks at its ends"
                raise source.refuse(source.line_of(name), found, "remove them")
        return facts

    return read_checked
