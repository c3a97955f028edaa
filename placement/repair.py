"""Repairing a placement after a loss: as few ranks move as must, to the spares that cost least."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .cluster import Cluster
from .errors import InvalidInput, Problem
from .evaluate import evaluate
from .losses import Device, Loss
from .pcg import PCG
from .place import PROOF_TOLERANCE, place
from .placement import Placement


@dataclass(frozen=True)
class Repair:
    """A placement after a loss and what it took.

    placement: the whole job; ranks that are not in `moved` are where they were.
    moved: all ranks with another device than before, ascending. forced: those whose device is lost.
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
) -> Repair:
    """Give every rank on a lost device another one, with as few bytes as possible, spine first.

    lost: names of nodes, and `(node name, device index)` for single devices.
    cluster: as it is now. The job's surviving devices stay usable whatever it says of them; ranks
        on nodes it does not have any more count as lost.
    max_moves: ranks beside those that may move too where that lowers the traffic.
    compare: also place the job anew within `time_limit_s`, for comparison.

    Raises Infeasible, with how many devices of which kind are short, and InvalidInput.
    """
    if max_moves < 0:
        raise InvalidInput("repair", [Problem("max_moves", f"found {max_moves}", "give 0 or more")])
    loss = Loss.of(placement.devices, pcg, cluster, lost)
    devices = list(placement.devices)
    if loss.forced or max_moves:
        # Imported here because compiled loops take half a second that reading a file does not need.
        from .relocation import relocated
        from .seat_rules import SeatRules

        none = SeatRules.none(pcg.world_size, len(cluster.nodes))
        devices = relocated(loss, max_moves, seed, none)
    moved = [
        rank
        for rank, (old, new) in enumerate(zip(placement.devices, devices, strict=True))
        if old != new
    ]
    fresh = place(pcg, loss.best_case(), time_limit_s, seed) if compare else None
    traffic = evaluate(pcg, cluster, devices).traffic_bytes
    spine = traffic[cluster.spine]
    bound = min(fresh.lower_bound_bytes, spine) if fresh else 0.0
    proved = spine <= bound * (1 + PROOF_TOLERANCE)
    note = f"repaired: {len(moved)} of {pcg.world_size} ranks moved, {len(loss.forced)} had to"
    return Repair(
        Placement(devices, traffic, bound, proved, "repair", [note]),
        moved,
        loss.forced,
        dict(placement.traffic_bytes),
        fresh,
    )
