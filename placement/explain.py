"""Why a job cannot be placed, and where the spine traffic of one that is placed comes from."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from .cluster import NODE_TIER, Cluster
from .constraining.constrained import Under, tiers_of
from .constraints import Constraints, Device, SameKind, free_nodes
from .errors import Infeasible, InvalidInput, Problem
from .evaluate import evaluate
from .jobs.kinds import on_same_kind
from .jobs.parts import rank_parts
from .pcg import PCG, Op
from .placement import Placement

_MOST_RELAXED, _MOST_PINS = 40, 8
_EACH_WEAKER = ("at_most", "excluded_nodes", "spares")
"""Constraints whose weaker versions each allow all that the one before allows."""
_IN_THE_WAY = tuple(name for name in Constraints.model_fields if name != "split_tensor_groups")
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Obstacle:
    """Why no placement satisfies the constraints.

    unmet: for each constraint in the way, a sentence with numbers. relaxations: constraints that
    can be met instead, each with a sentence that says what is given up, nearest first.
    """

    unmet: list[str]
    relaxations: list[tuple[str, Constraints]]

    def __str__(self) -> str:
        text = "; ".join(self.unmet)
        if self.relaxations:
            text += ". It can be placed with: " + "; or ".join(say for say, _ in self.relaxations)
        return text


def explain_infeasible(pcg: PCG, cluster: Cluster, constraints: Constraints) -> Obstacle | None:
    """What is in the way of placing a job under constraints; None when nothing is.

    A constraint is named when giving it up is enough; when that is true of none, those are that
    cannot be met even without the others. For jobs too large for the exact model, "cannot" means
    that packing in the ways tried finds no placement.
    Raises InvalidInput for names that do not exist.
    """
    constraints.check_names(pcg, cluster)
    if _possible(pcg, cluster, constraints):
        return None
    given = [name for name in _IN_THE_WAY if getattr(constraints, name)]
    alone = [n for n in given if _possible(pcg, cluster, without(constraints, n))]
    named = (
        alone or [n for n in given if not _possible(pcg, cluster, only(constraints, n))] or given
    )
    tell = _Numbers(pcg, cluster, constraints)
    relaxations: list[tuple[str, Constraints]] = []
    if not alone:
        rest = constraints
        for name in named:
            rest = without(rest, name)
        if _possible(pcg, cluster, rest):
            relaxations.append((f"no constraints {' and '.join(named)}", rest))
    for name in alone:
        options = list(_weaker(pcg, cluster, constraints, name))
        found = _first_possible(pcg, cluster, options, name in _EACH_WEAKER)
        if found is not None:
            relaxations.append(found)
    return Obstacle([tell.sentence(name) for name in named], relaxations)


def _first_possible(
    pcg: PCG, cluster: Cluster, options: list[tuple[str, Constraints]], each_weaker: bool
) -> tuple[str, Constraints] | None:
    """The first option that can be met; found by halving where each allows all the one before."""
    if not each_weaker:
        return next((option for option in options if _possible(pcg, cluster, option[1])), None)
    at = bisect_left(options, True, key=lambda option: _possible(pcg, cluster, option[1]))
    return options[at] if at < len(options) else None


def without(constraints: Constraints, name: str) -> Constraints:
    """The constraints less one of them."""
    default = Constraints.model_fields[name].default
    return constraints.model_copy(update={name: default})


def only(constraints: Constraints, name: str) -> Constraints:
    """One of the constraints alone."""
    return Constraints().model_copy(update={name: getattr(constraints, name)})


def _possible(pcg: PCG, cluster: Cluster, constraints: Constraints) -> bool:
    if constraints.same_kind:
        jobs = on_same_kind(constraints.same_kind, pcg, cluster).jobs
        return any(_possible(job, cluster, constraints.on_devices) for job in jobs)
    usable = constraints.usable(cluster)

    def none(*_: object) -> Placement:
        raise Infeasible

    under = Under(constraints, pcg, usable, 0, none)
    return any(under.possible(tier) for tier in tiers_of(constraints, cluster))


def _weaker(
    pcg: PCG, cluster: Cluster, constraints: Constraints, name: str
) -> Iterator[tuple[str, Constraints]]:
    """Weaker versions of one constraint, nearest first; the last gives it up."""

    def with_(**update: object) -> Constraints:
        return constraints.model_copy(update=update)

    tiers = list(cluster.tier_names)
    if name == "together" and constraints.together:
        for tier in tiers[tiers.index(constraints.together.tier) + 1 : -1]:
            wider = constraints.together.model_copy(update={"tier": tier})
            yield f"together in one {tier}", with_(together=wider)
    elif name == "at_most" and constraints.at_most:
        most = min(constraints.at_most.nodes + _MOST_RELAXED, len(cluster.nodes))
        for nodes in range(constraints.at_most.nodes + 1, most + 1):
            part = constraints.at_most.model_copy(update={"nodes": nodes})
            yield f"at most {counted(nodes, 'node')} in one {part.tier}", with_(at_most=part)
    elif name == "balanced" and constraints.balanced and constraints.balanced.domains:
        wanted = constraints.balanced.domains
        counts = [m for m in range(1, pcg.world_size + 1) if pcg.world_size % m == 0]
        for count in sorted(counts, key=lambda m: (abs(m - wanted), m))[:_MOST_RELAXED]:
            even = constraints.balanced.model_copy(update={"domains": count})
            yield f"balanced over {count} domains of {even.tier}", with_(balanced=even)
    elif name == "segments" and constraints.segments:
        ranks = constraints.segments.ranks
        for tier in tiers[tiers.index(constraints.segments.tier) + 1 : -1]:
            wide = constraints.segments.model_copy(update={"tier": tier})
            yield f"segments of {ranks} ranks, each in one {tier}", with_(segments=wide)
        shorter = range(2, min(ranks, pcg.world_size))
        for fewer in sorted((m for m in shorter if ranks % m == 0), reverse=True):
            short = constraints.segments.model_copy(update={"ranks": fewer})
            yield f"segments of {fewer} ranks, each in one {short.tier}", with_(segments=short)
    elif name == "pinned":
        for pin in constraints.pinned[:_MOST_PINS]:
            rest = tuple(other for other in constraints.pinned if other != pin)
            yield f"rank {pin.rank} not pinned to {pin.node}", with_(pinned=rest)
    elif name == "excluded_nodes":
        for count in range(1, min(len(constraints.excluded_nodes), _MOST_RELAXED)):
            kept = constraints.excluded_nodes[count:]
            back = ", ".join(constraints.excluded_nodes[:count])
            yield f"{back} not excluded", with_(excluded_nodes=kept)
    elif name == "spares":
        whole = len(free_nodes(constraints, cluster, set()))
        for spares in range(min(constraints.spares - 1, whole), 0, -1):
            yield counted(spares, "spare"), with_(spares=spares)
    elif name == "same_kind" and constraints.same_kind and constraints.same_kind.per == "job":
        yield "each group on one kind", with_(same_kind=SameKind(per="group"))
    yield f"no constraint {name}", without(constraints, name)


class _Numbers:
    """Sentences about constraints with the numbers that matter to them."""

    def __init__(self, pcg: PCG, cluster: Cluster, constraints: Constraints) -> None:
        self._pcg, self._ranks = pcg, pcg.world_size
        self._cluster, self._want = cluster, constraints
        self._usable = constraints.usable(cluster)

    def _by_domain(self, tier: str) -> dict[str, list[int]]:
        """Usable devices of each node that has any, by domain."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        for node in self._usable.nodes:
            if tier == self._cluster.spine:
                name = tier
            else:
                name = node.name if tier == NODE_TIER else node.domains[tier]
            if node.usable_devices:
                found[name].append(len(node.usable_devices))
        return dict(found)

    def sentence(self, name: str) -> str:
        """Why this constraint is in the way."""
        found: str = getattr(self, f"_{name}")()
        return found

    def _together(self) -> str:
        assert self._want.together
        tier = self._want.together.tier
        room = {d: sum(nodes) for d, nodes in self._by_domain(tier).items()}
        most = max(room, key=lambda d: (room[d], d), default="")
        return (
            f"together: {self._ranks} ranks need as many devices in one {tier} and the most "
            f"that is free in one is {room.get(most, 0)} ({tier} {most!r})"
        )

    def _at_most(self) -> str:
        assert self._want.at_most
        tier, nodes = self._want.at_most.tier, self._want.at_most.nodes
        domains = self._by_domain(tier)
        room = sum(sum(sorted(here, reverse=True)[:nodes]) for here in domains.values())
        return (
            f"at_most: {counted(nodes, 'node')} in each of {len(domains)} domains of {tier} have "
            f"{room} free devices at most and there are {self._ranks} ranks"
        )

    def _balanced(self) -> str:
        assert self._want.balanced
        tier, count = self._want.balanced.tier, self._want.balanced.domains
        room = sorted((sum(nodes) for nodes in self._by_domain(tier).values()), reverse=True)
        if count is None:
            return (
                f"balanced: no number of domains of {tier} divides {self._ranks} ranks into "
                f"shares that they have room for; free devices by domain: {_some(room)}"
            )
        if self._ranks % count:
            return f"balanced: {self._ranks} ranks are not divisible by {count} domains of {tier}"
        share = self._ranks // count
        able = sum(here >= share for here in room)
        return (
            f"balanced: {count} domains of {tier} need {share} free devices each and {able} have "
            f"so many; free devices by domain: {_some(room)}"
        )

    def _segments(self) -> str:
        assert self._want.segments
        tier, ranks = self._want.segments.tier, self._want.segments.ranks
        room = sum(sum(nodes) // ranks for nodes in self._by_domain(tier).values())
        return (
            f"segments: {-(-self._ranks // ranks)} segments of {ranks} ranks, each in one {tier}, "
            f"and there is room for {room} whole ones"
        )

    def _pinned(self) -> str:
        free = {node.name: node.usable_devices for node in self._usable.nodes}
        lost = [
            pin
            for pin in self._want.pinned
            if not free[pin.node] or pin.device not in (None, *free[pin.node])
        ]
        if lost:
            pin = lost[0]
            what = f"device {pin.device} of {pin.node}" if pin.device is not None else pin.node
            return f"pinned: rank {pin.rank} is pinned to {what}, which is not free"
        nodes = len({pin.node for pin in self._want.pinned})
        count = len(self._want.pinned)
        return f"pinned: {count} ranks are pinned to {nodes} nodes, which the rest does not allow"

    def _excluded_nodes(self) -> str:
        lost = sum(
            len(node.usable_devices)
            for node in self._cluster.nodes
            if node.name in self._want.excluded_nodes
        )
        left = sum(len(node.usable_devices) for node in self._usable.nodes)
        nodes = counted(len(self._want.excluded_nodes), "node")
        return (
            f"excluded_nodes: {nodes} with {lost} free devices are excluded, {left} are left for "
            f"{self._ranks} ranks"
        )

    def _whole_nodes(self) -> str:
        left = [len(n.usable_devices) for n in self._usable.nodes if n.usable_devices]
        return (
            f"whole_nodes: {len(left)} nodes are wholly free, with {sum(left)} devices for "
            f"{self._ranks} ranks"
        )

    def _spares(self) -> str:
        whole = len(free_nodes(self._want, self._usable, set()))
        devices = sum(len(node.usable_devices) for node in self._usable.nodes)
        return (
            f"spares: {self._want.spares} to be kept of {whole} wholly free nodes, and "
            f"{self._ranks} ranks need their devices from {devices} free ones"
        )

    def _same_kind(self) -> str:
        assert self._want.same_kind
        return on_same_kind(self._want.same_kind, self._pcg, self._usable).counts


def _some(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:6]))
    return f"{shown}, ..." if len(numbers) > 6 else shown or "none"


@dataclass(frozen=True)
class Source:
    """Traffic at a tier from like groups, such as the data-parallel rings of one stage.

    name: the groups' common name, `*` where they differ. parts: their stages (see `rank_parts`).
    groups: how many of them reach the tier. domains: over how many domains of the tier below it
    (`below`; devices within a node) each is spread, at most.
    """

    name: str
    op: Op
    parts: tuple[int, ...]
    groups: int
    domains: int
    below: str
    bytes: float

    def __str__(self) -> str:
        where = "stage" if len(self.parts) == 1 else "stages"
        parts = ", ".join(map(str, self.parts[:6])) + (", ..." if len(self.parts) > 6 else "")
        return (
            f"{self.name} ({counted(self.groups, 'group')}, {self.op}) of {where} {parts}, "
            f"over up to {counted(self.domains, self.below)}: {_size(self.bytes)} a step"
        )


def explain_traffic(
    pcg: PCG, cluster: Cluster, devices: list[Device], tier: str | None = None
) -> list[Source]:
    """Where the traffic at a tier (the spine if None) comes from, most bytes first.

    Groups are alike when their names differ in numbers only and they lie in the same stages. Their
    bytes add up to what `evaluate` counts at the tier. Raises InvalidInput.
    """
    at = tier if tier is not None else cluster.spine
    tiers = cluster.tier_names
    if at not in tiers:
        problem = Problem("tier", f"no tier {at!r}", f"the tiers are {', '.join(tiers)}")
        raise InvalidInput("explain_traffic", [problem])
    below = tiers[tiers.index(at) - 1] if at != NODE_TIER else None
    part_of = rank_parts(pcg)
    domain = {
        node.name: node.name if below in (None, NODE_TIER) else node.domains[str(below)]
        for node in cluster.nodes
    }
    alike: defaultdict[tuple[str, Op, tuple[int, ...]], list[tuple[str, float, int]]]
    alike = defaultdict(list)
    counted = evaluate(pcg, cluster, devices).by_group
    for group, found in zip(pcg.groups, counted, strict=True):
        size = found.bytes_by_tier[at]
        if size > 0:
            parts = tuple(sorted({part_of[rank] for rank in group.ranks}))
            if below is None:
                domains = len({devices[rank] for rank in group.ranks})
            else:
                domains = len({domain[devices[rank][0]] for rank in group.ranks})
            pattern = _NUMBER.sub("*", group.name)
            alike[pattern, group.op, parts].append((group.name, size, domains))
    sources = [
        Source(
            name=_common([name for name, _, _ in found]),
            op=op,
            parts=parts,
            groups=len(found),
            domains=max(domains for _, _, domains in found),
            below=below or "device",
            bytes=sum(size for _, size, _ in found),
        )
        for (_, op, parts), found in alike.items()
    ]
    return sorted(sources, key=lambda source: (-source.bytes, source.name))


def _common(names: list[str]) -> str:
    """The names with `*` for the numbers in which they differ."""
    numbers = [_NUMBER.findall(name) for name in names]
    same = [set(column) for column in zip(*numbers, strict=True)]
    values = iter(same)

    def fill(_: re.Match[str]) -> str:
        value = next(values)
        return next(iter(value)) if len(value) == 1 else "*"

    return _NUMBER.sub(fill, names[0])


def counted(number: int, noun: str) -> str:
    """A number with its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _size(count: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.3g} B"
