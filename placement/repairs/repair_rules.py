"""What constraints ask of a repair: who must move too, and where those that move may go."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ..cluster import NODE_TIER, Cluster, Node
from ..constraints import Constraints
from ..errors import Infeasible
from .losses import Device, Loss
from .seat_rules import SeatRules


@dataclass(frozen=True)
class Ruled:
    """A loss under constraints.

    loss: with all ranks forced that the constraints do not let stay, and only the spares that they
    allow. rules: where ranks may go. tier: the one at which the job is together, if it must be.
    notes: what had to be given up.
    """

    loss: Loss
    rules: SeatRules
    tier: str | None
    notes: list[str]


Search = Callable[[Loss, SeatRules], list[Device] | None]
"""Devices by rank for a loss under rules; None when some rank found no place."""


def ruled(constraints: Constraints, loss: Loss, search: Search) -> Ruled:
    """What the constraints make of a loss. Raises Infeasible naming the constraint in the way.

    search: finds places, here to see in which domains whole segments that were lost fit best.
    """
    return _Ruling(constraints, loss).ruled(search)


class _Ruling:
    def __init__(self, constraints: Constraints, loss: Loss) -> None:
        self._want, self._loss, self._cluster = constraints, loss, loss.cluster
        self._nodes = {node.name: node for node in loss.cluster.nodes}
        self._number = {node.name: n for n, node in enumerate(loss.cluster.nodes)}
        self._forced = set(loss.forced)
        self._spares = {name: set(free) for name, free in loss.spares.items()}
        self._ranks = range(len(loss.devices))
        self._rules = SeatRules.none(len(loss.devices), len(loss.cluster.nodes))
        self._tier: str | None = None
        self._notes: list[str] = []
        self._labels = _labels(loss.cluster)
        self._kept_in: dict[int, tuple[str, str]] = {}

    def ruled(self, search: Search) -> Ruled:
        self._close_nodes()
        self._pins()
        self._crowds()
        self._together()
        open_segments = self._segments()
        self._balance()
        self._check_room()
        if open_segments:
            self._anchor(open_segments, search)
        return Ruled(self._left(), self._rules, self._tier, self._notes)

    def _left(self) -> Loss:
        spares = {
            node.name: sorted(self._spares[node.name])
            for node in self._cluster.nodes
            if self._spares.get(node.name)
        }
        return replace(self._loss, forced=sorted(self._forced), spares=spares)

    def _stays(self) -> list[int]:
        return [rank for rank in self._ranks if rank not in self._forced]

    def _move(self, ranks: list[int]) -> None:
        """Ranks that must move too; what they leave may be taken by others."""
        for rank in ranks:
            name, index = self._loss.devices[rank]
            self._forced.add(rank)
            self._spares.setdefault(name, set()).add(index)

    def _domain(self, name: str, tier: str) -> str:
        if tier == self._cluster.spine:
            return tier
        return name if tier == NODE_TIER else self._nodes[name].domains[tier]

    def _domain_of(self, rank: int, tier: str) -> str:
        return self._domain(self._loss.devices[rank][0], tier)

    def _fail(self, name: str, why: str) -> Infeasible:
        return Infeasible(
            f"no repair on cluster {self._cluster.name!r}: {name}: {why}; place the job anew, or "
            "give that constraint up"
        )

    def _close_nodes(self) -> None:
        """Nodes that are excluded or not whole: nobody stays there, nobody goes there."""
        kept: Counter[str] = Counter(self._loss.devices[rank][0] for rank in self._stays())

        def closed(node: Node) -> bool:
            if node.name in self._want.excluded_nodes:
                return True
            whole = kept[node.name] + len(self._spares.get(node.name, ())) == node.devices
            return self._want.whole_nodes and not whole

        shut = {node.name for node in self._cluster.nodes if closed(node)}
        self._move([rank for rank in self._stays() if self._loss.devices[rank][0] in shut])
        for name in shut:
            self._spares.pop(name, None)

    def _pins(self) -> None:
        for pin in self._want.pinned:
            here = self._loss.devices[pin.rank]
            right = here[0] == pin.node and pin.device in (None, here[1])
            if right and pin.rank not in self._forced:
                continue
            if pin.rank not in self._forced:
                self._move([pin.rank])
            holder = self._holder((pin.node, pin.device)) if pin.device is not None else None
            if holder is not None:
                self._move([holder])
            free = self._spares.get(pin.node, set())
            if not free or (pin.device is not None and pin.device not in free):
                what = f"device {pin.device} of " if pin.device is not None else ""
                why = f"rank {pin.rank} is pinned to {what}{pin.node}, which cannot be had any more"
                raise self._fail("pinned", why)
            self._keep_inside([pin.rank], NODE_TIER, pin.node)

    def _holder(self, device: Device) -> int | None:
        return next((r for r in self._stays() if self._loss.devices[r] == device), None)

    def _keep_inside(self, ranks: list[int], tier: str, domain: str) -> None:
        """Ranks must stay in a domain; one farther in, named before, stays in force."""
        if tier == self._cluster.spine:
            return
        level = self._cluster.tier_names.index(tier)
        label = self._labels[level][domain] if level else self._number[domain]
        for rank in ranks:
            if self._rules.inside[rank] < 0 or self._rules.inside_level[rank] > level:
                self._rules.inside_level[rank] = level
                self._rules.inside[rank] = label
                self._kept_in[rank] = (tier, domain)

    def _crowds(self) -> None:
        most = self._want.at_most
        if most is None:
            return
        names = self._names(most.tier)
        ranks_on: Counter[str] = Counter(self._loss.devices[rank][0] for rank in self._stays())
        by_domain: defaultdict[str, list[str]] = defaultdict(list)
        for name in ranks_on:
            by_domain[self._domain(name, most.tier)].append(name)
        for here in by_domain.values():
            too_many = sorted(here, key=lambda name: (ranks_on[name], name))[: -most.nodes]
            self._move([r for r in self._stays() if self._loss.devices[r][0] in too_many])
        limits = np.full(len(names), most.nodes, dtype=np.int64)
        self._rules = replace(self._rules, crowd_label=self._by_node(most.tier), crowd=limits)

    def _names(self, tier: str) -> dict[str, int]:
        """Domains of a tier, numbered in the order of the nodes."""
        names: dict[str, int] = {}
        for node in self._cluster.nodes:
            names.setdefault(self._domain(node.name, tier), len(names))
        return names

    def _by_node(self, tier: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        names = self._names(tier)
        return np.array(
            [names[self._domain(node.name, tier)] for node in self._cluster.nodes], dtype=np.int64
        )

    def _room(self, tier: str) -> Counter[str]:
        """Devices that may be taken, by domain."""
        room: Counter[str] = Counter()
        for name, free in self._spares.items():
            room[self._domain(name, tier)] += len(free)
        return room

    def _together(self) -> None:
        want = self._want.together
        if want is None:
            return
        tiers = list(self._cluster.tier_names)
        first = tiers.index(want.tier)
        for tier in tiers[first:] if not want.required else [want.tier]:
            held = Counter(self._domain_of(rank, tier) for rank in self._stays())
            if len(held) > 1 and not want.required:
                continue
            room = self._room(tier)
            domain = max(held or room, key=lambda d: (held[d], room[d], d), default="")
            apart = [rank for rank in self._stays() if self._domain_of(rank, tier) != domain]
            if room[domain] >= len(self._forced) + len(apart):
                self._move(apart)
                self._keep_inside(sorted(self._forced), tier, domain)
                self._tier = tier
                if tier != want.tier:
                    self._notes.append(
                        f"together in one {want.tier} was preferred and cannot be; widened to "
                        f"{tier}"
                    )
                return
            if want.required:
                why = (
                    f"{len(self._forced) + len(apart)} ranks need another device in {tier} "
                    f"{domain!r} and {room[domain]} are free there"
                )
                raise self._fail("together", why)

    def _segments(self) -> list[list[int]]:
        """Ranks of a segment go where the rest of it is; returns segments of which nobody stays."""
        want = self._want.segments
        if want is None:
            return []
        if want.tier == NODE_TIER:
            self._rules = replace(self._rules, part=np.arange(len(self._ranks)) // want.ranks)
        whole = [
            list(self._ranks[first : first + want.ranks])
            for first in range(0, len(self._ranks), want.ranks)
        ]
        broken = [s for s in whole if any(rank in self._forced for rank in s)]
        open_: list[list[int]] = []
        room = self._room(want.tier)
        # Those with most left first: the fewer ranks stay, the less is lost when all must move.
        for segment in sorted(broken, key=lambda s: (sum(r in self._forced for r in s), s[0])):
            stay = [rank for rank in segment if rank not in self._forced]
            held = Counter(self._domain_of(rank, want.tier) for rank in stay)
            domain = max(held, key=lambda d: (held[d], d), default="")
            gone = len(segment) - held[domain]
            if stay and room[domain] >= gone:
                self._move([r for r in stay if self._domain_of(r, want.tier) != domain])
                self._keep_inside([r for r in segment if r in self._forced], want.tier, domain)
                room[domain] -= gone
            else:
                self._move(stay)
                room += held
                open_.append(segment)
        return open_

    def _balance(self) -> None:
        want = self._want.balanced
        if want is None:
            return
        total = len(self._ranks)
        held = Counter(self._domain_of(rank, want.tier) for rank in self._stays())
        room = self._room(want.tier)
        before = len(
            {
                self._domain_of(rank, want.tier)
                for rank in self._ranks
                if self._loss.devices[rank][0] in self._nodes
            }
        )
        counts = (
            [want.domains]
            if want.domains
            else [m for m in range(max(1, len(held)), total + 1) if total % m == 0]
        )
        outer = self._around(want.tier)
        for count in sorted(counts, key=lambda m: (abs(m - before), m)):
            share = total // count
            if total % count or count < len(held) or max(held.values(), default=0) > share:
                continue
            if any(room[d] < share - n for d, n in held.items()):
                continue
            able = [d for d in room if d not in held and room[d] >= share]
            if len(able) < count - len(held):
                continue
            new = sorted(able, key=lambda d: (-outer[d], d))[: count - len(held)]
            names = self._names(want.tier)
            quota = np.zeros(len(names), dtype=np.int64)
            quota[[names[d] for d in (*held, *new)]] = share
            self._rules = replace(self._rules, quota_label=self._by_node(want.tier), quota=quota)
            return
        least = min(held, key=lambda d: room[d] + held[d], default="")
        raise self._fail(
            "balanced",
            f"the domains of {want.tier} that the job is in hold {sorted(held.values())[:6]} ranks "
            f"and cannot be filled up to equal shares: {least!r} has {room[least]} free devices",
        )

    def _around(self, tier: str) -> Counter[str]:
        """For each domain of a tier, the ranks that stay in the domain around it."""
        names = list(self._cluster.tier_names)
        wider = names[min(names.index(tier) + 1, len(names) - 1)]
        held = Counter(self._domain_of(rank, wider) for rank in self._stays())
        found: Counter[str] = Counter()
        for node in self._cluster.nodes:
            found[self._domain(node.name, tier)] = held[self._domain(node.name, wider)]
        return found

    def _check_room(self) -> None:
        free = sum(map(len, self._spares.values()))
        if len(self._forced) > free:
            given = [n for n in ("excluded_nodes", "whole_nodes") if getattr(self._want, n)]
            raise self._fail(
                " and ".join(given) or "constraints",
                f"{len(self._forced)} ranks need another device and {free} may be taken",
            )

    def _anchor(self, segments: list[list[int]], search: Search) -> None:
        """Choose the domain of each segment that moves as a whole: where a search puts it."""
        want = self._want.segments
        assert want is not None
        if want.tier == NODE_TIER:
            return  # each moves as one
        devices = search(self._left(), self._rules) or self._loss.devices
        room = self._room(want.tier)
        for rank in self._forced - {rank for segment in segments for rank in segment}:
            room[self._domain_of_rule(rank, want.tier)] -= 1
        for segment in segments:
            liked = Counter(
                self._domain(devices[rank][0], want.tier)
                for rank in segment
                if devices[rank][0] in self._nodes
            )
            fits = [d for d in room if room[d] >= len(segment)]
            if not fits:
                why = (
                    f"ranks {segment[0]} to {segment[-1]} need {len(segment)} free devices in one "
                    f"{want.tier} and the most in one is {max(room.values(), default=0)}"
                )
                raise self._fail("segments", why)
            domain = max(fits, key=lambda d: (liked[d], -room[d], d))
            room[domain] -= len(segment)
            self._keep_inside(segment, want.tier, domain)

    def _domain_of_rule(self, rank: int, tier: str) -> str:
        """The domain of a tier that a rank's rule keeps it in; empty where it leaves several."""
        inner, domain = self._kept_in.get(rank, (self._cluster.spine, ""))
        names = self._cluster.tier_names
        if names.index(inner) > names.index(tier):
            return ""
        inside = next(n for n in self._nodes if self._domain(n, inner) == domain)
        return self._domain(inside, tier)


def _labels(cluster: Cluster) -> list[dict[str, int]]:
    """For each level from 1 on, the number of each domain, counted through all of these levels.

    As `seats_of` numbers them: by first appearance among the nodes.
    """
    found: list[dict[str, int]] = [{}]
    offset = 0
    for tier in cluster.tiers[:-1]:
        numbers: dict[str, int] = {}
        for node in cluster.nodes:
            numbers.setdefault(node.domains[tier.name], offset + len(numbers))
        offset += len(numbers)
        found.append(numbers)
    return found
