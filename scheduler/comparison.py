"""A placement beside packing the ranks in order, as a scheduler that knows no topology does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ..placement.cluster import Cluster
from ..placement.constraints import Constraints
from ..placement.evaluate import evaluate
from ..placement.jobs.index import Demand, Fabric
from ..placement.packing import pack_in_order
from ..placement.pcg import PCG
from ..placement.place import place
from ..placement.placement import Placement


@dataclass(frozen=True)
class Comparison:
    """A placement and what packing in order would have cost, bytes a step by tier."""

    placement: Placement
    packed_traffic_bytes: dict[str, float]

    @property
    def packed_cross_spine_bytes(self) -> float:
        """Bytes a step over the spine when packed in order."""
        return self.packed_traffic_bytes[list(self.packed_traffic_bytes)[-1]]

    def to_data(self) -> dict[str, Any]:
        """The placement's own data with `packed_traffic_bytes` beside it."""
        return self.placement.to_data() | {"packed_traffic_bytes": self.packed_traffic_bytes}


def packed_devices(pcg: PCG, cluster: Cluster) -> list[tuple[str, int]]:
    """The devices of a job packed in order onto the free ones, which must be enough."""
    fabric = Fabric.of(cluster)
    return fabric.devices(pack_in_order(fabric, Demand.of(pcg, fabric.kinds)))


def compare(
    pcg: PCG,
    cluster: Cluster,
    time_limit_s: float = 1.0,
    seed: int = 0,
    constraints: Constraints | None = None,
    objective: Literal["bytes", "time"] = "bytes",
) -> Comparison:
    """Place a job and count what packing in order, without constraints, costs.

    Raises Infeasible, InvalidInput.
    """
    placement = place(pcg, cluster, time_limit_s, seed, constraints, objective)
    packed = evaluate(pcg, cluster, packed_devices(pcg, cluster)).traffic_bytes
    return Comparison(placement, packed)
