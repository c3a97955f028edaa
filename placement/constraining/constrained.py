"""Placing a job under side constraints: exactly where it is small, else by parts of the cluster."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from ..cluster import NODE_TIER, Cluster
from ..constraints import Constraints, Device, with_free
from ..errors import Infeasible
from ..evaluate import Evaluator
from ..exact.exact_constrained import fits, place_exactly_under
from ..feasibility import check_feasible
from ..jobs.index import Demand, Fabric, Ints
from ..jobs.ordering import in_one_order
from ..loops.budget import Budget
from ..pcg import PCG, Group, Op
from ..placement import Placement
from ..timed.node_time import node_link_seconds
from .constrained_packing import pack
from .pins import with_pins
from .plots import nearest_spares, plots

Solver = Callable[[PCG, Cluster, float, int], Placement]
_RELAXED_SHARE, _PLOTS_SHARE, _EXACT_SHARE = 0.35, 0.4, 0.5
_MOST_PLOTS = 4
_PROOF_TOLERANCE = 1e-8


def place_under(
    constraints: Constraints,
    pcg: PCG,
    cluster: Cluster,
    time_limit_s: float,
    seed: int,
    solver: Solver,
) -> Placement | None:
    """The best placement found that satisfies the constraints; None when none was.

    solver: places a job without constraints. Its bound on the usable part of the cluster is a bound
    here too, as constraints only take placements away. Raises Infeasible when the job does not
    even fit without constraints, and InvalidInput for names that do not exist.
    """
    constraints.check_names(pcg, cluster)
    pcg, cluster = in_one_order(pcg, cluster)
    usable = constraints.usable(cluster)
    if _too_few_places(constraints, pcg, usable):
        check_feasible(pcg, Fabric.of(cluster))
        return None
    try:
        relaxed = solver(pcg, usable, time_limit_s * _RELAXED_SHARE, seed)
    except Infeasible:
        check_feasible(pcg, Fabric.of(cluster))
        return None
    tiers = tiers_of(constraints, cluster)
    under = Under(constraints, pcg, usable, seed, solver)
    for tier in tiers:
        if not constraints.broken(usable, relaxed.devices, tier):
            found: Placement | None = relaxed
        else:
            found = under.best(tier, relaxed, time_limit_s)
        if found is not None:
            notes = list(found.notes)
            if tier is not None and constraints.together and tier != constraints.together.tier:
                notes.append(
                    f"together in one {constraints.together.tier} was preferred and cannot be; "
                    f"widened to {tier}"
                )
            spares = nearest_spares(constraints, usable, found.devices)
            return replace(found, notes=notes, spares=spares)
    return None


def _too_few_places(constraints: Constraints, pcg: PCG, usable: Cluster) -> bool:
    """Whether the domains have room for fewer whole segments than there are, however they go."""
    segments = constraints.segments
    if segments is None or segments.tier == usable.spine:
        return False
    room = Counter[str]()
    for node in usable.nodes:
        domain = node.name if segments.tier == NODE_TIER else node.domains[segments.tier]
        room[domain] += len(node.usable_devices)
    places = sum(free // segments.ranks for free in room.values())
    return places < pcg.world_size // segments.ranks


def tiers_of(constraints: Constraints, cluster: Cluster) -> list[str | None]:
    """The tiers at which the job may be together, in order of preference; [None] for any."""
    if constraints.together is None:
        return [None]
    names = list(cluster.tier_names)
    first = names.index(constraints.together.tier)
    return [names[first]] if constraints.together.required else list(names[first:])


@dataclass(frozen=True)
class Under:
    """A job to be placed under constraints on the usable part of a cluster."""

    constraints: Constraints
    pcg: PCG
    usable: Cluster
    seed: int
    solver: Solver

    def best(self, tier: str | None, relaxed: Placement, time_limit_s: float) -> Placement | None:
        """The best found with the job together at `tier`."""
        count = Evaluator(self.pcg, self.usable)
        options = [self._pinned(relaxed.devices, self.usable, tier)]
        options += self._in_plots(tier, time_limit_s * _PLOTS_SHARE)
        found: tuple[list[float], list[Device]] | None = None
        for devices in options:
            if devices is not None:
                cost = list(count(devices).traffic_bytes.values())[::-1]
                if found is None or cost < found[0]:
                    found = (cost, devices)
        best = found[1] if found else None
        bound, proved, method = relaxed.lower_bound_bytes, False, "constrained"
        fabric = Fabric.of(self.usable)
        demand = Demand.of(self.pcg, fabric.kinds)
        if fits(fabric, demand):
            start = _nodes(fabric, best) if best else None
            budget = Budget(time_limit_s * _EXACT_SHARE)
            exact = place_exactly_under(self.constraints, tier, fabric, demand, start, budget)
            if exact.node is not None:
                best = devices_on(self.constraints, fabric, exact.node)
                bound, method = max(bound, exact.bound_bytes), "exact"
                proved = exact.proved_levels > 0
        if best is None:
            return None
        best = self._on_links(fabric, demand, best)
        traffic = count(best).traffic_bytes
        spine = traffic[self.usable.spine]
        proved = proved or spine <= bound * (1 + _PROOF_TOLERANCE)
        return Placement(
            best,
            traffic,
            spine if proved else min(bound, spine),
            proved,
            method,
            node_link_s=node_link_seconds(self.pcg, self.usable, best),
        )

    def _on_links(self, fabric: Fabric, demand: Demand, devices: list[Device]) -> list[Device]:
        """Devices on faster links of the same nodes; ranks that are pinned to one keep it."""
        if not self.usable.links:
            return devices
        from ..timed.on_links import choose_on_links

        every = fabric.devices(np.arange(len(fabric.slot_node)))
        number = {device: slot for slot, device in enumerate(every)}
        slots = np.array([number[device] for device in devices])
        pinned = [pin.rank for pin in self.constraints.pinned if pin.device is not None]
        budget = Budget(_EXACT_SHARE)
        return fabric.devices(choose_on_links(fabric, demand, slots, budget, pinned, stay=True))

    def possible(self, tier: str | None) -> bool:
        """Whether some placement satisfies the constraints, as far as a short look tells."""
        if any(devices is not None for devices in self._packed(tier)):
            return True
        fabric = Fabric.of(self.usable)
        demand = Demand.of(self.pcg.model_copy(update={"groups": ()}), fabric.kinds)
        if not fits(fabric, demand):
            return False
        return (
            place_exactly_under(
                self.constraints, tier, fabric, demand, None, Budget(_EXACT_SHARE)
            ).node
            is not None
        )

    def _packed(self, tier: str | None) -> list[list[Device] | None]:
        ranks = self.pcg.world_size
        found = []
        for plot in islice(plots(self.constraints, tier, ranks, self.usable), 2 * _MOST_PLOTS):
            part = with_free(self.usable, plot)
            found.append(self._pinned(pack(self.constraints, self.pcg, part), part, tier))
        return found

    def _in_plots(self, tier: str | None, time_limit_s: float) -> list[list[Device] | None]:
        ranks = self.pcg.world_size
        found = self._packed(tier)
        tied = with_ties(self.pcg, self.constraints)
        chosen = list(islice(plots(self.constraints, tier, ranks, self.usable), 2 * _MOST_PLOTS))
        chosen = chosen[: _MOST_PLOTS if not self.constraints.spares else 2 * _MOST_PLOTS]
        for plot in chosen:
            part = with_free(self.usable, plot)
            try:
                placed = self.solver(tied, part, time_limit_s / len(chosen), self.seed)
            except Infeasible:
                continue
            found.append(self._pinned(placed.devices, part, tier))
        return found

    def _pinned(
        self, devices: list[Device] | None, part: Cluster, tier: str | None
    ) -> list[Device] | None:
        """The placement with every pinned rank in place; None where anything is broken."""
        moved = with_pins(self.constraints, part, devices) if devices is not None else None
        if moved is None or self.constraints.broken(self.usable, moved, tier):
            return None
        kinds = {node.name: node.accelerator for node in self.usable.nodes}
        needs = self.pcg.required_accelerators()
        suits = all(kinds[moved[rank][0]] == kind for rank, kind in needs.items())
        return moved if suits else None


def with_ties(pcg: PCG, constraints: Constraints) -> PCG:
    """The PCG with a ring through every segment that costs more to split than all the rest saves.

    For the solver only: bounds and traffic of it mean nothing.
    """
    segments = constraints.segments
    if segments is None or segments.ranks == 1:
        return pcg
    enough = sum(2 * len(group.ranks) * group.bytes for group in pcg.groups) + 1.0
    ties = tuple(
        Group.model_construct(
            name=f"segment {first}",
            op=Op.ALL_REDUCE,
            ranks=tuple(range(first, min(first + segments.ranks, pcg.world_size))),
            bytes=enough,
        )
        for first in range(0, pcg.world_size, segments.ranks)
    )
    return pcg.model_copy(update={"groups": (*pcg.groups, *ties)})


def _nodes(fabric: Fabric, devices: list[Device]) -> Ints:
    number = {node.name: index for index, node in enumerate(fabric.cluster.nodes)}
    return np.array([number[name] for name, _ in devices], dtype=np.int64)


def devices_on(constraints: Constraints, fabric: Fabric, node: Ints) -> list[Device]:
    """Devices for ranks whose nodes are known: pinned ones first, then in order."""
    names = [n.name for n in fabric.cluster.nodes]
    free: defaultdict[int, list[int]] = defaultdict(list)
    for at, device in zip(fabric.slot_node.tolist(), fabric.slot_device.tolist(), strict=True):
        free[at].append(device)
    fixed = {pin.rank: pin.device for pin in constraints.pinned if pin.device is not None}
    for rank, device in fixed.items():
        free[int(node[rank])].remove(device)
    return [
        (names[at], fixed[rank] if rank in fixed else free[at].pop(0))
        for rank, at in enumerate(node.tolist())
    ]
