"""Finding other devices for the ranks that lost theirs, and for a few beside them if allowed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from ..cluster import Cluster, Node, Tier
from ..jobs.index import ANY_KIND, Demand, Fabric, Ints
from ..loops.chance import seeded
from ..pcg import PCG, Group, Op
from ..rails.on_rails import on_rails
from .all_ways import MOST_EXACT, least
from .losses import Device, Loss
from .reseat import descend, seat_each
from .seat_rules import SeatRules
from .seat_walk import anneal
from .seats import AWAY, Seats, put_all, seats_of, take_all

Pins = Sequence[tuple[int, int]]
"""(rank, device index)."""
_MOST_SINGLE = 64
"""Forced ranks up to which each may also go its own way."""
_MOST_SINGLE_RANKS = 512
"""Jobs up to so many ranks also move single ranks, not only all of a node."""
_MOVES_AN_ITEM, _MOST_MOVES = 4000, 200_000
"""Steps of a walk for each item that moves, and at most, when only the forced ones do."""
_MOVES_WITH_OTHERS = 200_000
"""Steps of the one walk when others may move too."""
_HEATS = ((2.0, 0.02), (0.4, 0.02), (0.06, 0.01))
"""First and last temperature of the walks, in parts of what a step changes on average. The first
gets out of where a few items came to lie one by one, the second settles."""
_HEAT_WITH_OTHERS = (0.2, 0.002)
_STEPS_IN_TIME = 500_000
"""Steps of all walks at one heat up to which a repair stays within its time."""
_MOST_IN_TIME = 64
"""Items beyond which a repair takes the time it needs: what lay together must find a new order."""
_MOST_TURNS = 8
_AGAIN_SHARE = 0.15
"""Steps where all items have places already and are only taken apart."""
_INNER_SHARE, _INNER_SHARE_WITH_OTHERS = 0.25, 0.1
"""Steps at the inner tiers, as part of those at the outermost."""
_MOST_SWAPPED = 64
_ROUNDS = 5


def relocated(
    loss: Loss, max_moves: int, seed: int, rules: SeatRules, pinned: Pins = ()
) -> list[Device] | None:
    """Devices of all ranks after the forced ones have moved, and at most `max_moves` others.

    pinned: ranks with the device they must have. None when some rank finds no place under `rules`.
    """
    fabric = Fabric.of(loss.cluster)
    must = set(loss.forced)
    groups = loss.pcg.groups
    if max_moves == 0:  # other groups cost the same whatever is chosen
        groups = tuple(group for group in groups if not must.isdisjoint(group.ranks))
    demand = Demand.of(loss.pcg.model_copy(update={"groups": groups}), fabric.kinds)
    number = {node.name: index for index, node in enumerate(loss.cluster.nodes)}
    node = np.array([number.get(name, AWAY) for name, _ in loss.devices], dtype=np.int64)
    room = np.zeros(len(fabric.kind), dtype=np.int64)
    for name, free in loss.spares.items():
        room[number[name]] = len(free)
    job = _Relocation(fabric, demand, loss.forced, node, room, max_moves, seed, rules)
    found = job.nodes()
    if (found[loss.forced] == AWAY).any():
        return None
    devices = devices_on_nodes(loss, found, pinned)
    if fabric.rail is None:
        return devices
    free = [rank for rank in loss.forced if rank not in dict(pinned)]
    return on_rails(loss, devices, free, seed, rules.free)


class _Relocation:
    """node: of each rank before the loss. room: free devices by node after it."""

    def __init__(
        self,
        fabric: Fabric,
        demand: Demand,
        forced: list[int],
        node: Ints,
        room: Ints,
        most: int,
        seed: int,
        rules: SeatRules,
    ) -> None:
        self._fabric, self._demand, self._rules = fabric, demand, rules
        self._forced = np.array(forced, dtype=np.int64)
        self._node, self._room, self._most, self._seed = node, room, most, seed
        self._home_kind = np.where(node >= 0, fabric.kind[node], -1)
        self._others = np.ones(demand.ranks, dtype=bool)
        self._others[self._forced] = False

    def nodes(self) -> Ints:
        """The node of each rank; AWAY where there is none."""
        whole = self._by_home(self._forced)
        found = self._node.copy()
        found[self._forced] = AWAY
        if self._most and len(whole) > MOST_EXACT:
            # Many that lost their places first find an order; a walk with others only mends it.
            found = self._seated(whole, self._by_node(self._others), found, 0)
        found = self._seated(whole, self._by_node(self._others), found, self._most)
        away = self._forced[found[self._forced] == AWAY]
        few = len(self._forced) <= _MOST_SINGLE
        small = self._most and self._demand.ranks <= _MOST_SINGLE_RANKS
        if not (len(away) or few or small):
            return found
        apart = self._forced if few else away
        kept = np.setdiff1d(self._forced, apart)
        stay, share = self._others, 1.0 if len(away) else _AGAIN_SHARE
        others = self._apart(np.flatnonzero(stay)) if small else self._by_node(stay)
        found = self._seated(
            [*self._apart(apart), *self._by_home(kept)], others, found, self._most, share
        )
        if (found[self._forced] == AWAY).any():
            # Ranks that any device serves took devices of a kind that others need: all start anew.
            found[self._forced] = AWAY
            found = self._seated(self._apart(self._forced), self._by_node(stay), found, self._most)
        return found

    def _by_home(self, ranks: Ints) -> list[Ints]:
        """Ranks that were on one node and may go to the same places, together."""
        parts: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)
        inside = self._rules.inside[ranks].tolist()
        for rank, at, within in zip(
            ranks.tolist(), self._node[ranks].tolist(), inside, strict=True
        ):
            level = int(self._rules.inside_level[rank])
            parts[at, level, within].append(rank)
        return [np.array(part, dtype=np.int64) for part in parts.values()]

    def _apart(self, ranks: Ints) -> list[Ints]:
        """Ranks one by one; those of one part that were on one node together."""
        parts: dict[tuple[int, int], list[int]] = {}
        for rank in ranks.tolist():
            part = int(self._rules.part[rank])
            key = (part, int(self._node[rank])) if part >= 0 else (-1 - rank, 0)
            parts.setdefault(key, []).append(rank)
        return [np.array(part, dtype=np.int64) for part in parts.values()]

    def _by_node(self, stay: np.ndarray) -> list[Ints]:
        ranks = np.flatnonzero(stay)
        keys = np.stack([self._node, self._rules.inside_level, self._rules.inside])[:, ranks]
        order = np.lexsort(keys[::-1])
        cuts = np.flatnonzero((np.diff(keys[:, order]) != 0).any(axis=0)) + 1
        return [part for part in np.split(ranks[order], cuts) if len(part)]

    def _seated(
        self, items: list[Ints], others: list[Ints], start: Ints, most: int, share: float = 1.0
    ) -> Ints:
        """Nodes of all ranks once `items` have the best places found, beginning from `start`.

        most: ranks of `others` that may move. share: of the usual steps of a walk.
        """
        count = len(items)
        seats = seats_of(
            self._fabric,
            self._demand,
            self._node,
            self._room,
            [*items, *others],
            self._home_kind,
            count,
            most,
            self._rules,
        )
        begin = np.array([start[ranks[0]] for ranks in [*items, *others]], dtype=np.int64)
        _begin_at(seats, begin)
        _settle(seats, count, most > 0, self._seed, share)
        found = start.copy()
        for ranks, node in zip([*items, *others], seats.at.tolist(), strict=True):
            found[ranks] = node
        return found


def _begin_at(seats: Seats, begin: Ints) -> None:
    moved = np.flatnonzero(seats.at != begin)
    there = moved[seats.at[moved] != AWAY]
    take_all(seats, there)
    moved = moved[begin[moved] != AWAY]
    put_all(seats, moved, begin[moved])


def _settle(seats: Seats, forced: int, others: bool, seed: int, share: float) -> None:
    """Find places for the first `forced` items, and better ones for others where they may move.

    share: of the usual steps of a walk.
    """
    if not len(seats.movable):
        return
    items = np.arange(forced)
    easy = (seats.need[:forced] == ANY_KIND, -seats.size[:forced], items)
    order = np.lexsort(easy[::-1])
    slack = seats.slack
    seat_each(seats, order, slack)
    if (seats.at[:forced] == AWAY).any():
        return
    if not others and forced <= MOST_EXACT and least(seats, items, slack):
        return
    state = seeded(seed)
    outermost = seats.levels - 1
    if others:
        heats, moves, inner = [_HEAT_WITH_OTHERS], _MOVES_WITH_OTHERS, _INNER_SHARE_WITH_OTHERS
    else:
        heats = [*_HEATS] * (_turns(forced) if share == 1.0 else 1)
        moves, inner = min(_MOST_MOVES, _MOVES_AN_ITEM * forced), _INNER_SHARE
    moves = int(moves * share)
    for hot, cold in heats:
        anneal(seats, outermost, forced, moves, hot, cold, state, slack)
    for level in range(outermost - 1, -1, -1):
        anneal(seats, level, forced, int(moves * inner), *_HEATS[-1], state, slack)
    descend(seats, items, slack, _ROUNDS, _MOST_SWAPPED)


def _turns(items: int) -> int:
    """How often all heats are gone through, each time from the best found so far."""
    if items <= MOST_EXACT:  # once was as good in all that was measured
        return 1
    if items > _MOST_IN_TIME:
        return _MOST_TURNS
    return max(1, min(_MOST_TURNS, _STEPS_IN_TIME // (_MOVES_AN_ITEM * items)))


def warm_up_relocation() -> None:
    """Compile the loops of a repair on a small one."""
    names = ["a", "b", "c", "d", "e"]
    cluster = Cluster(
        name="warm-up",
        tiers=tuple(Tier(name=t, bandwidth=1.0, latency=0.0) for t in ("tor", "spine")),
        nodes=tuple(Node(name=n, accelerator="any", devices=1, domains={"tor": n}) for n in names),
    )
    ring = Group(name="ring", op=Op.ALL_REDUCE, ranks=(0, 1, 2), bytes=1.0)
    pcg = PCG(world_size=3, groups=(ring,))
    loss = Loss.of([(name, 0) for name in names[:3]], pcg, cluster, names[:1])
    rules = SeatRules.none(3, len(names))
    for moves in (0, 1):
        relocated(loss, moves, 0, rules)


def devices_on_nodes(loss: Loss, node: Ints, pinned: Pins = ()) -> list[Device]:
    """Devices on the nodes chosen: the index a rank had before, else one on its rail."""
    names = [n.name for n in loss.cluster.nodes]
    rails = loss.cluster.rails
    devices = list(loss.devices)
    must = set(loss.forced)
    moved: dict[str, list[int]] = defaultdict(list)
    free = {name: set(indices) for name, indices in loss.spares.items()}
    for rank, number in enumerate(node.tolist()):
        if number != AWAY and (rank in must or names[number] != devices[rank][0]):
            moved[names[number]].append(rank)
            if rank not in must:
                free.setdefault(devices[rank][0], set()).add(devices[rank][1])
    for rank, index in pinned:
        name = names[int(node[rank])]
        if rank in moved.get(name, ()):
            devices[rank] = (name, index)
            moved[name].remove(rank)
            free[name].remove(index)
    for name, ranks in moved.items():
        here = free.get(name, set())
        for same in (
            lambda old, new: old == new,
            lambda old, new: old % rails == new % rails,
            lambda old, new: True,
        ):
            for rank in list(ranks):
                old = loss.devices[rank][1]
                found = next((new for new in sorted(here) if same(old, new)), None)
                if found is not None:
                    devices[rank] = (name, found)
                    here.remove(found)
                    ranks.remove(rank)
    return devices
