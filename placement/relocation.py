"""Where the ranks go that a loss leaves without a device, and few others with them."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from .budget import Budget
from .constraints import Constraints
from .exact_constrained import Stay, fits, place_exactly_under
from .index import Demand, Fabric, Ints
from .insertion import Board
from .losses import Device, Loss
from .on_rails import on_rails
from .settle import settle
from .shift import shift

_MOST_SINGLE = 64
"""Forced ranks up to which each may also go its own way."""


def relocated(loss: Loss, max_moves: int, seed: int) -> list[Device]:
    """Devices of all ranks after the forced ones have moved, and at most `max_moves` others."""
    fabric = Fabric.of(loss.cluster)
    if max_moves:
        exact = _exactly(loss, max_moves)
        if exact is not None:
            return exact
    must = set(loss.forced)
    groups = loss.pcg.groups
    if max_moves == 0:  # other groups cost the same whatever is chosen
        groups = tuple(group for group in groups if not must.isdisjoint(group.ranks))
    demand = Demand.of(loss.pcg.model_copy(update={"groups": groups}), fabric.kinds)
    number = {node.name: index for index, node in enumerate(loss.cluster.nodes)}
    node = np.array([number.get(name, -1) for name, _ in loss.devices], dtype=np.int64)
    home_kind = np.where(node >= 0, fabric.kind[node], -1)
    room = np.zeros(len(fabric.kind), dtype=np.int64)
    for name, free in loss.spares.items():
        room[number[name]] = len(free)
    node = _nodes(fabric, demand, node, room, home_kind, loss, seed)
    if max_moves:
        spare = room - np.bincount(node[loss.forced], minlength=len(room))
        node = shift(fabric, demand, node, spare, home_kind, loss.forced, max_moves, seed)
    devices = _devices(loss, node)
    return on_rails(loss, devices, seed) if fabric.rail is not None else devices


def _exactly(loss: Loss, max_moves: int) -> list[Device] | None:
    """The best repair of a small job when some ranks may move that need not; None for others."""
    fabric = Fabric.of(loss.best_case())
    demand = Demand.of(loss.pcg, fabric.kinds)
    if not fits(fabric, demand):
        return None
    number = {node.name: index for index, node in enumerate(loss.cluster.nodes)}
    must = set(loss.forced)
    node = {r: number[name] for r, (name, _) in enumerate(loss.devices) if r not in must}
    answer = place_exactly_under(
        Constraints(), None, fabric, demand, None, Budget(1.0), Stay(node, max_moves)
    )
    if answer.node is None or answer.proved_levels < fabric.levels:
        return None
    return _devices(loss, answer.node)


def _nodes(
    fabric: Fabric,
    demand: Demand,
    node: Ints,
    room: Ints,
    home_kind: Ints,
    loss: Loss,
    seed: int,
) -> Ints:
    """The node of each rank when only the forced ones move."""
    by_home: dict[str, list[int]] = defaultdict(list)
    for rank in loss.forced:
        by_home[loss.devices[rank][0]].append(rank)
    whole = [np.array(ranks, dtype=np.int64) for ranks in by_home.values()]
    board = Board.of(fabric, demand, node, room, whole, home_kind)
    left = settle(board, list(range(board.items)), seed)
    if not left and len(loss.forced) > _MOST_SINGLE:
        return board.node
    must = np.array(loss.forced, dtype=np.int64)
    if len(must) > _MOST_SINGLE:  # only the ranks of nodes that no spare node holds whole
        must = must[board.node[must] < 0]
    apart = board.split([np.array([rank]) for rank in must.tolist()], home_kind)
    if settle(apart, list(range(apart.items)), seed):
        # Ranks that any device serves took devices of a kind that others need: all start anew.
        single = [np.array([rank]) for rank in loss.forced]
        apart = Board.of(fabric, demand, node, room, single, home_kind)
        settle(apart, list(range(apart.items)), seed)
    return apart.node


def _devices(loss: Loss, node: Ints) -> list[Device]:
    """Devices on the nodes chosen: the index a rank had before, else one on its rail."""
    names = [n.name for n in loss.cluster.nodes]
    rails = loss.cluster.rails
    devices = list(loss.devices)
    must = set(loss.forced)
    moved: dict[str, list[int]] = defaultdict(list)
    free = {name: set(indices) for name, indices in loss.spares.items()}
    for rank, number in enumerate(node.tolist()):
        if rank in must or names[number] != devices[rank][0]:
            moved[names[number]].append(rank)
            if rank not in must:
                free.setdefault(devices[rank][0], set()).add(devices[rank][1])
    for name, ranks in moved.items():
        here = free[name]
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
