"""Nodes that one file calls by an identifier and another by name: GUIDs, instance numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..errors import InvalidInput, Problem
from .facts import Facts, Network

_MOST_SHOWN = 4


def with_given_names(facts: Mapping[str, Facts], warnings: list[str]) -> dict[str, Facts]:
    """The same facts with each node called as another file names its identifier.

    A file that is only a list of names gives them to what the others know by the same identifiers;
    any other file to nodes that are called by an identifier it names. Several nodes of one file
    that get one name are one node: their domains are taken as one. Raises InvalidInput where
    files give one node two names.
    """
    new_names: dict[str, dict[str, str]] = {file: {} for file in facts}
    for giver, given in facts.items():
        is_list = given.network is None and not given.machines
        for file, each in facts.items():
            if file == giver or not given.aliases:
                continue
            known = _nodes(each)
            found = 0
            for identifier, name in given.aliases.items():
                old = each.aliases.get(identifier) if is_list else None
                old = identifier if old is None and identifier in known else old
                if old is None or old not in known:
                    continue
                found += 1
                if new_names[file].setdefault(old, name) != name:
                    raise InvalidInput("import", [_two_names(file, old, new_names[file], name)])
            if is_list and each.aliases and found < len(given.aliases):
                warnings.append(
                    f"{giver}: {len(given.aliases) - found} of {len(given.aliases)} identifiers "
                    f"are not in {file}"
                )
    return {file: _renamed(each, new_names[file], file, warnings) for file, each in facts.items()}


def _nodes(facts: Facts) -> set[str]:
    return {*(facts.network.domains if facts.network else ()), *facts.machines}


def _two_names(file: str, old: str, names: Mapping[str, str], name: str) -> Problem:
    found = f"it is {names[old]!r} by one identifier and {name!r} by another"
    return Problem(f"{file}: node {old}", found, "correct the list of names")


def _renamed(facts: Facts, names: Mapping[str, str], file: str, warnings: list[str]) -> Facts:
    if not names or all(old == new for old, new in names.items()):
        return facts
    network = facts.network
    if network is not None:
        missing = [node for node in network.domains if node not in names]
        if missing and len(missing) < len(network.domains):
            shown = ", ".join(missing[:_MOST_SHOWN])
            warnings.append(f"{file}: {len(missing)} nodes keep their names: {shown}")
        network = _joined(network, names)
    machines = {names.get(node, node): machine for node, machine in facts.machines.items()}
    return replace(facts, network=network, machines=machines)


def _joined(network: Network, names: Mapping[str, str]) -> Network:
    """The network under new names; what had several nodes of one name is one node."""
    stands: dict[tuple[str, str], str] = {}

    def of(tier: str, domain: str) -> str:
        while (tier, domain) in stands:
            domain = stands[tier, domain]
        return domain

    first: dict[str, Mapping[str, str]] = {}
    ports: dict[str, int] = {}
    for node, has in network.domains.items():
        name = names.get(node, node)
        ports[name] = ports.get(name, 0) + 1
        known = first.setdefault(name, has)
        for tier, domain in has.items():
            a, b = of(tier, known.get(tier, domain)), of(tier, domain)
            if a != b:
                stands[tier, b] = a
    domains: dict[str, dict[str, str]] = {}
    for node, has in network.domains.items():
        told = domains.setdefault(names.get(node, node), {})
        for tier, domain in has.items():
            told.setdefault(tier, of(tier, domain))
    counts = set(ports.values())
    rails = counts.pop() if len(counts) == 1 and len(domains) < len(network.domains) else None
    return replace(network, domains=domains, rails=rails or network.rails)
