"""Repairing a placement after a loss: as few ranks move as must, to the spares that cost least."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from .cluster import Cluster, NodeState
from .constraints import Constraints
from .errors import InvalidInput, Problem
from .evaluate import evaluate
from .jobs.search_limits import check_search
from .pcg import PCG
from .place import PROOF_TOLERANCE, place
from .placement import Placement
from .repairs.losses import Device, Loss


@dataclass(frozen=True)
class Repair:
    """A placement after a loss and what it took.

    placement: the whole job; ranks that are not in `moved` are where they were.
    moved: all ranks with another device than before, ascending. forced: those whose device is lost,
        and those that the constraints do not let stay.
    before_bytes: traffic by tier before the loss, as the old placement tells it; compare with
        `placement.traffic_bytes`.
    fresh: what placing the job anew would give, any rank moving anywhere; None unless asked for.
    """

    placement: Placement
    moved: list[int]
    forced: list[int]
    before_bytes: dict[str, float]
    fresh: Placement | None = None

    @property
    def added_spine_bytes(self) -> float:
        """Cross-spine bytes a step that the repaired placement has more than the old one."""
        return self.placement.cross_spine_bytes - list(self.before_bytes.values())[-1]


def repair(
    placement: Placement,
    pcg: PCG,
    cluster: Cluster,
    lost: Iterable[str | Device],
    max_moves: int = 0,
    seed: int = 0,
    compare: bool = False,
    time_limit_s: float = 1.0,
    constraints: Constraints | None = None,
    placed_on: Cluster | None = None,
) -> Repair:
    """Give every rank on a lost device another one, with as few bytes as possible, spine first.

    lost: names of nodes, and `(node name, device index)` for single devices.
    cluster: as it is now. The job's surviving devices stay usable whatever it says of them; ranks
        on nodes it does not have any more count as lost.
    max_moves: ranks beside those that may move too where that lowers the traffic.
    compare: also place the job anew within `time_limit_s`, for comparison.
    constraints: hold for the result; ranks that they do not let stay move too. Spares they ask for
        may be taken: what is left is named, and a note says how many are missing.
    placed_on: the cluster as it was when the job was placed under these constraints. Where no
        device has come free since, the placement's bound still holds and is kept.

    Raises Infeasible, with how many devices of which kind are short or the constraint in the way,
    and InvalidInput.
    """
    check_search("repair", time_limit_s, seed, constraints)
    if max_moves < 0:
        raise InvalidInput("repair", [Problem("max_moves", f"found {max_moves}", "give 0 or more")])
    wish = constraints or Constraints()
    wish.check_names(pcg, cluster)
    loss = Loss.of(placement.devices, pcg, cluster, lost)
    usable = loss.best_case() if compare or placed_on or not wish.empty else cluster
    devices, forced, notes = list(placement.devices), loss.forced, list[str]()
    if loss.forced or max_moves or not wish.empty:
        # Imported here because compiled loops take half a second that reading a file does not need.
        from .repairs.mending import mended

        devices, forced, notes = mended(loss, usable, wish, max_moves, seed)
    moved = [
        rank
        for rank, (old, new) in enumerate(zip(placement.devices, devices, strict=True))
        if old != new
    ]
    fresh = place(pcg, usable, time_limit_s, seed, constraints) if compare else None
    traffic = evaluate(pcg, cluster, devices).traffic_bytes
    spine = traffic[cluster.spine]
    note = f"repaired: {len(moved)} of {pcg.world_size} ranks moved, {len(forced)} had to"
    bound = _bound(placement, usable, placed_on, fresh)
    if bound is None:
        bound = 0.0
        notes.append(
            "no bound: nothing tells which devices were free when the job was placed, or some have "
            "come free since; give placed_on, or compare=True"
        )
    bound = min(bound, spine)
    proved = spine <= bound * (1 + PROOF_TOLERANCE)
    repaired = Placement(devices, traffic, bound, proved, "repair", [note, *notes])
    if wish.spares:
        repaired = _with_spares(repaired, wish, usable)
    return Repair(repaired, moved, forced, dict(placement.traffic_bytes), fresh)


def _bound(
    placement: Placement, usable: Cluster, placed_on: Cluster | None, fresh: Placement | None
) -> float | None:
    """The best bound known on the devices that can be had now; None when there is none.

    A bound for some devices holds for any part of them.
    """
    bounds = [fresh.lower_bound_bytes] if fresh else []
    if placed_on is not None and _only_fewer(usable, placed_on):
        bounds.append(placement.lower_bound_bytes)
    return max(bounds, default=None)


def _only_fewer(now: Cluster, before: Cluster) -> bool:
    """Whether every device usable now was usable before, in the same place of the same network."""
    if (now.tier_names, now.rails, now.cross_rail) != (
        before.tier_names,
        before.rails,
        before.cross_rail,
    ):
        return False
    known = {node.name: node for node in before.nodes}
    for node in now.nodes:
        free = node.usable_devices
        if not free:
            continue
        old = known.get(node.name)
        if old is None or old.domains != node.domains or old.accelerator != node.accelerator:
            return False
        if old.state is not NodeState.FREE or not set(free) <= set(old.usable_devices):
            return False
    return True


def _with_spares(repaired: Placement, wish: Constraints, usable: Cluster) -> Placement:
    from .constraining.plots import nearest_spares

    spares = nearest_spares(wish, wish.usable(usable), repaired.devices)
    notes = list(repaired.notes)
    if len(spares) < wish.spares:
        notes.append(f"spares: {len(spares)} whole nodes are left of the {wish.spares} asked for")
    return replace(repaired, spares=spares, notes=notes)
