"""From a loss to devices for all ranks, under constraints: exactly where the job is small."""

from __future__ import annotations

from collections import defaultdict

from ..cluster import Cluster
from ..constraints import Constraints
from ..errors import Infeasible
from ..exact.exact_constrained import Stay, fits, place_exactly_under
from ..jobs.index import Demand, Fabric
from ..loops.budget import Budget
from ..pcg import Requirement
from .losses import Device, Loss
from .relocation import Pins, devices_on_nodes, relocated
from .repair_rules import ruled
from .seat_rules import SeatRules

_EXACT_WORK = 1.0


def mended(
    loss: Loss, usable: Cluster, constraints: Constraints, max_moves: int, seed: int
) -> tuple[list[Device], list[int], list[str]]:
    """Devices by rank, the ranks that had to move, and notes.

    usable: the cluster with exactly the devices free that the job may have. Raises Infeasible.
    """
    if constraints.same_kind is not None:
        loss = _of_the_same_kind(loss)
    wish = constraints.on_devices.model_copy(update={"spares": 0})
    pins: Pins = [(pin.rank, pin.device) for pin in wish.pinned if pin.device is not None]

    def search(part: Loss, rules: SeatRules, moves: int = 0) -> list[Device] | None:
        return relocated(part, moves, seed, rules, pins)

    if wish.empty:
        nothing = SeatRules.none(len(loss.devices), len(loss.cluster.nodes))
        found = (_exactly(loss, wish, None, max_moves, pins) if max_moves else None) or search(
            loss, nothing, max_moves
        )
        assert found is not None  # Loss has counted that there are enough
        return found, loss.forced, []
    job = ruled(wish, loss, search)
    found = _exactly(job.loss, wish, job.tier, max_moves, pins)
    for moves in (max_moves, 0) if max_moves else (0,):
        if found is None or wish.broken(usable, found, job.tier):
            found = search(job.loss, job.rules, moves)
    if found is None or wish.broken(usable, found, job.tier):
        raise Infeasible(
            f"no repair on cluster {loss.cluster.name!r}: no places found for "
            f"{len(job.loss.forced)} ranks that satisfy {_named(wish)}; allow more moves, place "
            "the job anew, or give one of them up"
        )
    return found, job.loss.forced, job.notes


def _of_the_same_kind(loss: Loss) -> Loss:
    """The loss of a job in which every rank needs the kind of accelerator that it had."""
    kinds = {node.name: node.accelerator for node in loss.cluster.nodes}
    had: defaultdict[str, list[int]] = defaultdict(list)
    for rank, (name, _) in enumerate(loss.devices):
        if name in kinds and rank not in loss.needs:
            had[kinds[name]].append(rank)
    needs = tuple(Requirement(ranks=tuple(r), accelerator=kind) for kind, r in had.items())
    pcg = loss.pcg.model_copy(update={"requires": (*loss.pcg.requires, *needs)})
    return Loss.of(loss.devices, pcg, loss.cluster, loss.gone)


def _named(wish: Constraints) -> str:
    given = [name for name in Constraints.model_fields if getattr(wish, name)]
    return " and ".join(given)


def _exactly(
    loss: Loss, wish: Constraints, tier: str | None, max_moves: int, pins: Pins
) -> list[Device] | None:
    """The best repair of a small job; None for others, and where there is none."""
    fabric = Fabric.of(wish.usable(loss.best_case()))
    demand = Demand.of(loss.pcg, fabric.kinds)
    if not fits(fabric, demand):
        return None
    number = {node.name: index for index, node in enumerate(loss.cluster.nodes)}
    must = set(loss.forced)
    node = {r: number[name] for r, (name, _) in enumerate(loss.devices) if r not in must}
    stay = Stay(node, max_moves)
    budget = Budget(_EXACT_WORK)
    answer = place_exactly_under(wish, tier, fabric, demand, None, budget, stay)
    if answer.node is None or answer.proved_levels < fabric.levels:
        return None
    return devices_on_nodes(loss, answer.node, pins)
