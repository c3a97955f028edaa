"""Putting strategies on the devices of the cluster as it is, and estimating them there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..cluster import Cluster
from ..cost import StepEstimate
from ..evaluate import Device, evaluate
from ..pcg import PCG, Requirement
from ..place import place
from ..placement import Placement
from ..transformer_pcg import build_pcg
from ..workload import Workload
from .estimates import Estimate


@dataclass(frozen=True)
class Seated:
    """A strategy on its devices.

    in_order_s: seconds of its step with ranks on the free devices in order, never less than
        `estimate.step_s`. placed: whether the solver was asked.
    requires: accelerators that ranks need, where a cluster has several.
    """

    workload: Workload
    estimate: StepEstimate
    placement: Placement
    in_order_s: float
    placed: bool
    requires: tuple[Requirement, ...] = ()


def pcg_of(workload: Workload, requires: Sequence[Requirement] = ()) -> PCG:
    """The PCG of a workload, with the accelerators that its ranks need."""
    pcg = build_pcg(workload)
    return pcg.model_copy(update={"requires": tuple(requires)}) if requires else pcg


def devices_in_order(cluster: Cluster, count: int) -> list[Device]:
    """The first free devices, domain after domain and node after node, as `estimate` takes them."""
    inner = [tier.name for tier in reversed(cluster.tiers[:-1])]
    first: dict[tuple[str, ...], int] = {}

    def key(index: int) -> tuple[int, ...]:
        path = tuple(cluster.nodes[index].domains[tier] for tier in inner)
        ways = (path[:depth] for depth in range(1, len(path) + 1))
        return (*(first.setdefault(way, index) for way in ways), index)

    places = sorted(key(index) for index in range(len(cluster.nodes)))
    free = (
        (cluster.nodes[place[-1]].name, device)
        for place in places
        for device in cluster.nodes[place[-1]].usable_devices
    )
    return [device for device, _ in zip(free, range(count), strict=False)]


def seat_in_order(
    workload: Workload,
    cluster: Cluster,
    estimator: Estimate,
    devices: Sequence[Device],
    requires: tuple[Requirement, ...] = (),
) -> Seated:
    """A strategy with rank r on `devices[r]`."""
    found = estimator(workload, devices)
    traffic = evaluate(pcg_of(workload), cluster, devices).traffic_bytes
    placement = Placement(list(devices), traffic, 0.0, traffic[cluster.spine] == 0, "packing")
    return Seated(workload, found, placement, found.step_s, False, requires)


def seat(
    workload: Workload,
    cluster: Cluster,
    estimator: Estimate,
    time_limit_s: float,
    seed: int,
    in_order: Sequence[Device],
    requires: tuple[Requirement, ...] = (),
) -> Seated:
    """A strategy where the solver places it, or on `in_order` where its step takes less there.

    The solver places for the fewest bytes over the spine; the slowest group, which decides a step,
    may lie better with ranks in order. Bounds are those of the solver in both cases.
    """
    packed = seat_in_order(workload, cluster, estimator, in_order, requires)
    placed = place(pcg_of(workload, requires), cluster, time_limit_s, seed)
    found = estimator(workload, placed.devices)
    spine = placed.cross_spine_bytes
    no_more = spine <= packed.placement.cross_spine_bytes
    if found.step_s < packed.estimate.step_s or (
        found.step_s == packed.estimate.step_s and no_more
    ):
        return Seated(workload, found, placed, packed.estimate.step_s, True, requires)
    ordered = packed.placement
    bound = min(placed.lower_bound_bytes, ordered.cross_spine_bytes)
    proved = placed.proved_optimal and ordered.cross_spine_bytes <= spine
    here = Placement(ordered.devices, ordered.traffic_bytes, bound, proved, "packing")
    return Seated(workload, packed.estimate, here, packed.estimate.step_s, True, requires)
