"""Placing a job for the least predicted communication time instead of the fewest bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from ..bounds.time_bound import least_seconds
from ..cluster import Cluster
from ..evaluate import Device, evaluate
from ..jobs.gather import gather
from ..jobs.index import Demand, Fabric, Ints
from ..jobs.ordering import in_one_order
from ..jobs.tensor_groups import Ranks, scale_up_tier, whole_groups
from ..packing import pack_in_order
from ..pcg import PCG
from ..placement import Placement
from .link_time import TimeModel
from .node_time import node_link_seconds

Solver = Callable[[PCG, Cluster, float, int], Placement]
_VARIANT_SHARE = 0.1
_TOLERANCE = 1e-9
"""Relative difference below which two times are the same."""
_PROOF_TOLERANCE = 1e-8


def place_fastest(
    pcg: PCG,
    cluster: Cluster,
    base: Placement,
    time_limit_s: float,
    seed: int,
    solver: Solver,
    split_tensor_groups: bool = False,
) -> Placement:
    """The placement found with the least predicted time, never slower than `base` or packing.

    Of several as fast the first of: base, packing, then by fewer bytes as `solver` places the job
    when tiers count in other ways or with another seed; the fastest is improved by moves and swaps
    of what must share a node, and small jobs are searched through. time_limit_s: work besides base.
    Tensor-parallel groups that are whole in `base` stay so unless `split_tensor_groups`.
    """
    kept = [] if split_tensor_groups else whole_groups(pcg, cluster, base.devices)
    model = TimeModel(pcg, cluster)
    best, best_s, method = base.devices, model(base.devices).total_s, base.method
    bound_bytes = 0.0
    ordered_pcg, ordered_cluster = in_one_order(pcg, cluster)
    fabric = Fabric.of(ordered_cluster)
    work = time_limit_s
    for devices, how, lower_bytes, cost in _variants(pcg, cluster, time_limit_s, seed, solver):
        work -= cost
        bound_bytes = max(bound_bytes, lower_bytes)
        seconds = model(devices).total_s
        if seconds < best_s * (1 - _TOLERANCE) and _whole(kept, pcg, cluster, devices):
            best, best_s, method = devices, seconds, how
    bound_s = least_seconds(ordered_pcg, fabric, bound_bytes)
    notes = list(base.notes)
    if best_s > bound_s * (1 + _PROOF_TOLERANCE):
        # Imported here because compiled loops take half a second that reading a file does not need.
        from .timed_search import searched
        from .timed_whole import whole_parts

        unit_of = _units(fabric, ordered_pcg, best, kept)
        level = cluster.tier_names.index(scale_up_tier(cluster))
        whole = whole_parts(kept, pcg.world_size, level)
        found = searched(ordered_pcg, fabric, best, best_s, unit_of, whole, work, seed)
        notes += found.notes
        seconds = model(found.devices).total_s
        if seconds < best_s * (1 - _TOLERANCE):
            best, best_s, method = found.devices, seconds, found.method
        if found.proved:
            bound_s = max(bound_s, best_s)
    if best_s > bound_s * (1 + _PROOF_TOLERANCE):
        notes.append("not proved the fastest possible")
    else:
        bound_s = best_s
    traffic = evaluate(pcg, cluster, best).traffic_bytes
    spine = traffic[cluster.spine]
    return replace(
        base,
        devices=best,
        traffic_bytes=traffic,
        lower_bound_bytes=min(bound_bytes, spine),
        proved_optimal=spine <= bound_bytes * (1 + _PROOF_TOLERANCE),
        method=method,
        notes=notes,
        node_link_s=node_link_seconds(pcg, cluster, best),
        communication_s=best_s,
        communication_bound_s=min(bound_s, best_s),
    )


def _variants(
    pcg: PCG, cluster: Cluster, time_limit_s: float, seed: int, solver: Solver
) -> Iterator[tuple[list[Device], str, float, float]]:
    """Placements that may be fast: devices, how found, a bound on spine bytes, and their work."""
    as_given = Fabric.of(cluster)
    packed = pack_in_order(as_given, Demand.of(pcg, as_given.kinds))
    yield as_given.devices(packed), "packing", 0.0, 0.0
    share = time_limit_s * _VARIANT_SHARE
    other = solver(pcg, cluster, share, seed + 1)
    yield other.devices, other.method, other.lower_bound_bytes, share
    for inner in range(len(cluster.tiers) - 2, -1, -1):
        # The outer tiers are taken for one, so that bytes at a nearer boundary count first.
        nearer = cluster.model_copy(update={"tiers": cluster.tiers[: inner + 1]})
        placed = solver(pcg, nearer, share, seed)
        yield placed.devices, f"{placed.method} within {nearer.spine}", 0.0, share


def _whole(kept: list[Ranks], pcg: PCG, cluster: Cluster, devices: list[Device]) -> bool:
    return not kept or set(kept) <= set(whole_groups(pcg, cluster, devices))


def _units(fabric: Fabric, pcg: PCG, devices: list[Device], kept: list[Ranks]) -> Ints:
    """The unit of each rank: what must share a node and does, else the rank alone.

    That are the ranks that speak most, or equal groups that stay whole, whichever is larger.
    """
    demand = Demand.of(pcg, fabric.kinds)
    number = {node.name: index for index, node in enumerate(fabric.cluster.nodes)}
    home = np.array([number[name] for name, _ in devices], dtype=np.int64)
    units = [gather(fabric, demand).atom_of]
    members = np.array([rank for ranks in kept for rank in ranks], dtype=np.int64)
    sizes = {len(ranks) for ranks in kept}
    if len(sizes) == 1 and np.array_equal(np.sort(members), np.arange(demand.ranks)):
        of_group = np.empty(demand.ranks, dtype=np.int64)
        of_group[members] = np.arange(demand.ranks) // sizes.pop()
        units.append(of_group)
    for unit_of in sorted(units, key=lambda found: int(found.max())):
        order = np.argsort(unit_of, kind="stable")
        together = home[order].reshape(int(unit_of.max()) + 1, -1)
        if (together == together[:, :1]).all():
            return unit_of
    return np.arange(demand.ranks)
