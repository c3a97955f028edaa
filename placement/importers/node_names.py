"""One name for each node where files call it differently: `n1` and `n1.site.example`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .facts import ANY_NODE, Facts, Machine, Network
from .machines import completed


def one_name_each(
    facts: Mapping[str, Facts], warnings: list[str]
) -> tuple[list[tuple[str, Network]], dict[str, Machine]]:
    """The networks by file and the machines by node, in which each node has one name.

    A name with dots is that of the node whose name is its first part in another file. Machines of
    one node in several files complete each other; the first one that tells a fact is believed.
    """
    names = {
        name
        for each in facts.values()
        for name in [*(each.network.domains if each.network else ()), *each.machines]
        if name != ANY_NODE
    }
    short = {
        name: head for name in names if (head := name.partition(".")[0]) != name and head in names
    }
    if short:
        shown = ", ".join(f"{name} = {head}" for name, head in sorted(short.items())[:3])
        warnings.append(f"{len(short)} nodes have a long and a short name ({shown}); each is one")
    networks = []
    machines: dict[str, Machine] = {}
    for file, each in facts.items():
        if each.network is not None:
            domains = {short.get(n, n): has for n, has in each.network.domains.items()}
            networks.append((file, replace(each.network, domains=domains)))
        for name, machine in each.machines.items():
            if name != ANY_NODE:
                node = short.get(name, name)
                known = machines.get(node)
                machines[node] = machine if known is None else completed(known, machine)
    return networks, machines
