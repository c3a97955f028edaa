"""Which NIC of a node is on which rail, and where each is reached."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence

import psutil

from ..placement.errors import InvalidInput, Problem
from .nics import LinkState, Nic, read_nics
from .probe_end import NicAddress

VARIABLE = "RAILWEAVE_NICS"
"""Names of a node's NICs in the order of rails, separated by commas, in the environment of its Ray
processes. Without it, RDMA devices that are up and have an IP address are rails, by name."""


def rail_nics(
    address: str, named: str, nics: Sequence[Nic], addresses: Mapping[str, Sequence[str]]
) -> tuple[NicAddress, ...]:
    """The NIC of each rail; the node's own address alone where rails are not known.

    named: what `VARIABLE` holds. addresses: those of each interface. Raises InvalidInput for names
    that the node does not have, or that have no address.
    """
    names = [name.strip() for name in named.split(",") if name.strip()]
    problems = [
        Problem(
            f"NIC {name!r}",
            "has no IP address here" if name in {nic.name for nic in nics} else "is not there",
            f"name NICs with an address: {', '.join(n for n in addresses if addresses[n])}",
        )
        for name in names
        if not addresses.get(name)
    ]
    if problems:
        raise InvalidInput(VARIABLE, problems)
    rdma = [
        nic.name
        for nic in nics
        if nic.rdma_device and nic.state is LinkState.UP and addresses.get(nic.name)
    ]
    chosen = names or (rdma if len(rdma) > 1 else [])
    found = tuple(NicAddress(address=addresses[name][0], device=name) for name in chosen)
    return found or (NicAddress(address=address),)


def own_rail_nics(address: str, named: str) -> tuple[NicAddress, ...]:
    """The same for this machine. Raises InvalidInput."""
    families = (socket.AF_INET, socket.AF_INET6)
    addresses = {
        name: [
            each.address
            for family in families
            for each in given
            if each.family == family and not each.address.startswith("fe80:")
        ]
        for name, given in psutil.net_if_addrs().items()
        if name != "lo"
    }
    return rail_nics(address, named, read_nics(), addresses)
