"""What a plan is: ranked strategies on their devices, why the others lose, what was considered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..cost import StepEstimate
from ..errors import InvalidInput
from ..pcg import PCG, Requirement
from ..placement import Placement
from ..workload import Workload
from .neighbours import Neighbour
from .search import Point
from .seats import pcg_of
from .why import strategy_text

FORMAT = "railweave.plan/1"


@dataclass(frozen=True)
class PlannedStrategy:
    """A strategy on its devices.

    workload: the strategy. estimate: its step there. placement: its devices; `placed` is False
        where these are the free devices in order and the solver was not asked.
    in_order_s: seconds of its step with the ranks on the free devices in order.
    why: which parts of the step make it slower than the best, "" for the best.
    name: of a rule of thumb that chooses it, else "".
    requires: accelerators that its ranks need, where the cluster has several kinds.
    """

    workload: Workload
    estimate: StepEstimate
    placement: Placement
    in_order_s: float
    placed: bool
    why: str = ""
    name: str = ""
    requires: tuple[Requirement, ...] = ()

    @property
    def pcg(self) -> PCG:
        """What its ranks send each other."""
        return pcg_of(self.workload, self.requires)

    def __str__(self) -> str:
        kinds = ", then ".join(need.accelerator for need in self.requires)
        return strategy_text(self.workload) + (f", on {kinds}" if kinds else "")

    def to_data(self, run: Run | None = None) -> dict[str, Any]:
        """Plain data: all but the devices, which are in the placement file."""
        split, found = self.workload.parallelism, self.estimate
        data: dict[str, Any] = {
            "strategy": str(self),
            "parallelism": split.model_dump(mode="json", exclude_none=True),
            "micro_batch": self.workload.micro_batch,
            "recompute": self.workload.recompute,
            "step_s": found.step_s,
            "tokens_per_s": found.tokens_per_s,
            "mfu": found.mfu,
            "memory_bytes": found.memory_bytes,
            "memory_limit_bytes": found.memory_limit_bytes,
            "breakdown": dict(found.breakdown),
            "memory": dict(found.memory),
            "devices": found.devices,
            "software": found.software,
            "traffic_bytes": self.placement.traffic_bytes,
            "cross_spine_bytes": self.placement.cross_spine_bytes,
            "placed": self.placed,
            "in_order_s": self.in_order_s,
            "why": self.why,
        }
        if self.name:
            data["name"] = self.name
        if run is not None:
            data["run"] = run.of(found)
        return data


@dataclass(frozen=True)
class Run:
    """A whole training, for what it takes in days, money and energy.

    tokens: of the training. price_per_device_hour: in any currency. pue: energy of the site over
    that of its devices. power_w: of a device; that of its accelerator by default.
    """

    tokens: float
    price_per_device_hour: float | None = None
    pue: float = 1.2
    power_w: float | None = None

    def of(self, found: StepEstimate) -> dict[str, float | None]:
        """Days, device hours, cost and energy by an estimate; None for what is not known."""
        price = self.price_per_device_hour
        try:
            energy: float | None = found.energy_kwh(self.tokens, self.pue, self.power_w)
        except InvalidInput:
            energy = None
        return {
            "tokens": self.tokens,
            "days": found.days(self.tokens),
            "device_hours": found.device_hours(self.tokens),
            "cost": None if price is None else found.cost(self.tokens, price),
            "energy_kwh": energy,
        }


@dataclass(frozen=True)
class RuleOfThumb:
    """What a rule of thumb chooses. strategy: None where nothing of its kind fits; `why_not` then
    says what is short. times_as_long: its step over the best one's."""

    name: str
    strategy: PlannedStrategy | None
    why_not: str = ""
    times_as_long: float | None = None

    def to_data(self) -> dict[str, Any]:
        """Plain data."""
        chosen = None if self.strategy is None else self.strategy.to_data()
        return {
            "name": self.name,
            "strategy": chosen,
            "why_not": self.why_not,
            "times_as_long": self.times_as_long,
        }


@dataclass(frozen=True)
class Plan:
    """Strategies for a model on a cluster, fastest first; the first is the plan.

    rules_of_thumb: what they choose; never faster. neighbours: strategies one step from the best.
    considered: how many strategies there are within the limits, and what became of them (`Tally`).
    points: those worked out in full. notes: what a reader must know.
    """

    strategies: tuple[PlannedStrategy, ...]
    rules_of_thumb: tuple[RuleOfThumb, ...]
    neighbours: tuple[Neighbour, ...]
    considered: dict[str, int]
    points: tuple[Point, ...] = ()
    notes: tuple[str, ...] = ()
    free_devices: int = 0
    cluster_name: str = ""
    spine: str = field(default="spine")

    @property
    def best(self) -> PlannedStrategy:
        """The fastest strategy."""
        return self.strategies[0]

    def to_data(self, run: Run | None = None) -> dict[str, Any]:
        """Plain data in the format `railweave.plan/1`."""
        return {
            "format": FORMAT,
            "model": self.best.workload.model.name,
            "cluster": self.cluster_name,
            "free_devices": self.free_devices,
            "global_batch": self.best.workload.global_batch,
            "sequence": self.best.workload.sequence,
            "precision": self.best.workload.precision,
            "strategies": [one.to_data(run) for one in self.strategies],
            "rules_of_thumb": [one.to_data() for one in self.rules_of_thumb],
            "neighbours": [
                {"change": n.change, "outcome": n.outcome, "step_s": n.step_s, "limit": n.limit}
                for n in self.neighbours
            ],
            "considered": self.considered,
            "notes": list(self.notes),
        }
