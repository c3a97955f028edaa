"""NVLink domains wider than a node, put below the tiers of a network so that all nest."""

from __future__ import annotations

from collections.abc import Mapping

from .facts import Network, TierFacts
from .tier_names import NVLINK

PART = "nvlink-part"
"""The tier of a part of an NVLink domain, such as a rack of it."""


def with_accelerator_domains(
    network: Network | None, domains: Mapping[str, str], parts: Mapping[str, str] | None = None
) -> tuple[Network, list[str]]:
    """The network with the NVLink domain (and the part of it) of each node that has one.

    Where a domain lies under several domains of a tier, those are taken as one, with a warning:
    its nodes meet below the network. A network of None has no tiers.
    """
    known: Mapping[str, Mapping[str, str]] = network.domains if network else {}
    names = list(dict.fromkeys([*known, *domains]))
    if not domains:
        return network or Network((), {}), []
    tiers = [TierFacts(NVLINK, scale_up=True)]
    if parts:
        tiers.insert(0, TierFacts(PART, scale_up=True))
    found = {
        name: {
            **({PART: parts[name]} if parts and name in parts else {}),
            **({NVLINK: domains[name]} if name in domains else {}),
            **known.get(name, {}),
        }
        for name in names
    }
    warnings = []
    lower = NVLINK
    for tier in network.tiers if network else ():
        joined = _joined(found, lower, tier.name)
        if joined:
            shown = ", ".join(f"{one} with {other}" for one, other in list(joined.items())[:3])
            warnings.append(
                f"{lower} domains reach over several domains of {tier.name}, which are taken as "
                f"one each: {shown}"
            )
            for has in found.values():
                if tier.name in has:
                    has[tier.name] = joined.get(has[tier.name], has[tier.name])
        lower = tier.name
    if network is None:
        return Network(tuple(tiers), found), warnings
    return Network((*tiers, *network.tiers), found, network.spine, network.rails), warnings


def _joined(found: Mapping[str, Mapping[str, str]], lower: str, upper: str) -> dict[str, str]:
    """Domains of the upper tier that share one of the lower, by the one that stands for them."""
    stands: dict[str, str] = {}

    def of(one: str) -> str:
        while stands.get(one, one) != one:
            one = stands[one]
        return one

    first: dict[str, str] = {}
    for has in found.values():
        if lower in has and upper in has:
            a, b = of(first.setdefault(has[lower], has[upper])), of(has[upper])
            if a != b:
                stands[b] = a
    return {one: of(one) for one in stands if of(one) != one}
