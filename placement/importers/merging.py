"""The networks of several files as one ladder of tiers, or what contradicts what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ..errors import InvalidInput, Problem
from .facts import Network, TierFacts

_MOST_PROBLEMS = 8


@dataclass(frozen=True)
class Column:
    """A tier with the domain of each node that has one, and the files that told it."""

    tier: TierFacts
    domains: Mapping[str, str]
    files: tuple[str, ...]

    def count(self, nodes: Sequence[str]) -> int:
        """Domains among `nodes`, where one without a domain is alone."""
        named = {self.domains[node] for node in nodes if node in self.domains}
        return len(named) + sum(node not in self.domains for node in nodes)


@dataclass(frozen=True)
class Ladder:
    """Tiers nearest first without the one that joins all, the numbers of that one, and rails."""

    columns: tuple[Column, ...]
    spine: TierFacts
    rails: int | None
    warnings: tuple[str, ...]


def merged(
    networks: Sequence[tuple[str, Network]],
    nodes: Sequence[str],
    without_tiers: Iterable[str] = (),
) -> Ladder:
    """One ladder of tiers out of those of several files.

    networks: by file. nodes: all nodes there are. Tiers of one name are one tier; tiers that part
    the nodes alike are one tier. A tier with one domain is the spine, one in which every node is
    alone is left out. Raises InvalidInput where files contradict each other or domains do not
    nest, naming nodes and files.
    """
    left_out = set(without_tiers)
    columns: list[Column] = []
    warnings: list[str] = []
    for file, network in networks:
        for tier in network.tiers:
            if tier.name not in left_out:
                told = {
                    node: has[tier.name]
                    for node, has in network.domains.items()
                    if tier.name in has
                }
                _take_in(columns, Column(tier, told, (file,)), warnings)
    spine = next((each.spine for _, each in networks if each.spine), None) or TierFacts("spine")
    kept: list[Column] = []
    for column in columns:
        domains = column.count(nodes)
        if domains == 1 and not column.tier.scale_up:
            spine = _filled(spine, column.tier)
        elif 1 < domains < len(nodes) or column.tier.scale_up:
            kept.append(column)
    kept.sort(key=lambda column: (not column.tier.scale_up, -column.count(nodes)))
    kept = _carried_outwards(kept, warnings)
    _refuse_crossing(kept)
    rails = {network.rails for _, network in networks if network.rails}
    if len(rails) > 1:
        shown = ", ".join(map(str, sorted(rails)))
        warnings.append(f"files differ in rails ({shown}); the least is taken")
    return Ladder(tuple(kept), spine, min(rails, default=None), tuple(warnings))


def _carried_outwards(columns: Sequence[Column], warnings: list[str]) -> list[Column]:
    """The tiers, where what is together further in is together further out.

    A node that no file places in a tier lies where the nodes of its domain of the tier below lie.
    """
    found = list(columns[:1])
    for column in columns[1:]:
        lower = found[-1]
        known: dict[str, str] = {}
        for node, domain in column.domains.items():
            if node in lower.domains:
                known.setdefault(lower.domains[node], domain)
        added = {
            node: known[domain]
            for node, domain in lower.domains.items()
            if node not in column.domains and domain in known
        }
        if added:
            node, domain = next(iter(added.items()))
            warnings.append(
                f"{column.tier.name}: no file says in which {len(added)} nodes lie; they are taken "
                f"to lie where the others of their {lower.tier.name} do, such as {node} in {domain}"
            )
        found.append(replace(column, domains={**column.domains, **added}))
    return found


def _take_in(columns: list[Column], new: Column, warnings: list[str]) -> None:
    """Add a tier, into the one of its name or of its partition where there is one."""
    for position, old in enumerate(columns):
        shared = [node for node in new.domains if node in old.domains]
        same_name = old.tier.name == new.tier.name
        alike = set(old.domains) == set(new.domains) and not _differing(old, new, shared)
        if not same_name and not (alike and old.files != new.files):
            continue
        differing = _differing(old, new, shared)
        if differing:
            raise InvalidInput("import", [_contradiction(old, new, differing)])
        names = {new.domains[node]: old.domains[node] for node in shared}
        if any(mine != theirs for mine, theirs in names.items()):
            warnings.append(
                f"{new.files[0]}: its {new.tier.name} is the {old.tier.name} of {old.files[0]} "
                "under other names"
            )
        told = {node: names.get(domain, domain) for node, domain in new.domains.items()}
        columns[position] = Column(
            _filled(old.tier, new.tier), {**told, **old.domains}, (*old.files, *new.files)
        )
        return
    columns.append(new)


def _filled(tier: TierFacts, other: TierFacts) -> TierFacts:
    """A tier with the numbers it lacks taken from another."""
    return replace(
        tier,
        bytes_per_s=tier.bytes_per_s or other.bytes_per_s,
        latency_s=tier.latency_s or other.latency_s,
        oversubscription=tier.oversubscription or other.oversubscription,
        scale_up=tier.scale_up or other.scale_up,
    )


def _differing(old: Column, new: Column, shared: Sequence[str]) -> tuple[str, str] | None:
    """Two nodes that share a domain by one file and not by the other; None where none do."""
    there: dict[str, str] = {}
    back: dict[str, str] = {}
    for node in shared:
        first = there.setdefault(old.domains[node], node)
        if new.domains[first] != new.domains[node]:
            return first, node
        first = back.setdefault(new.domains[node], node)
        if old.domains[first] != old.domains[node]:
            return first, node
    return None


def _contradiction(old: Column, new: Column, pair: tuple[str, str]) -> Problem:
    a, b = pair
    one, other = (
        f"{column.files[0]} puts them in {column.tier.name} {column.domains[a]!r} and "
        f"{column.domains[b]!r}"
        for column in (old, new)
    )
    return Problem(
        f"nodes {a} and {b}",
        f"{one}; {other}",
        f"correct one of the files, or leave the tier out with --without-tier {new.tier.name}",
    )


def _refuse_crossing(columns: Sequence[Column]) -> None:
    problems = []
    for lower, upper in pairwise(columns):
        first: dict[str, str] = {}
        for node, domain in lower.domains.items():
            known = first.setdefault(domain, node)
            up, of_known = upper.domains.get(node), upper.domains.get(known)
            if up != of_known:
                problems.append(
                    Problem(
                        f"nodes {known} and {node}",
                        f"{lower.tier.name} {domain!r} ({lower.files[0]}) holds both, but they lie "
                        f"in {upper.tier.name} {of_known!r} and {up!r} ({upper.files[0]})",
                        f"correct the files, or leave a tier out: --without-tier {upper.tier.name}",
                    )
                )
                break
    if problems:
        raise InvalidInput("import", problems[:_MOST_PROBLEMS])
