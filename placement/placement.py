"""A placement: which device each rank runs on, what that costs, and how good it is."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field

from .files import read_data, validated, write_text_atomically
from .quantities import Index, Name, NonNegative

FORMAT = "railweave.placement/1"


@dataclass(frozen=True)
class Placement:
    """Ranks on devices.

    devices: `(node name, device index)` by rank.
    traffic_bytes: bytes a step that meet at each tier ("node" first, the spine last), as the
        independent evaluator counts them.
    lower_bound_bytes: proven lower bound on cross-spine bytes.
    proved_optimal: whether no placement has fewer cross-spine bytes.
    method: which part of the solver found it, for people.
    spares: nodes kept free near the job for repairs, nearest first, where constraints ask for them.
    node_link_s: seconds a step that the traffic inside nodes takes on their links, summed over its
        edges; None where no links of the nodes used are described.
    communication_s: predicted time of a step's communication, and communication_bound_s: seconds
        that no placement is predicted to take less than (the same where that is proved of this
        one); None unless placed by time. `communication_time` predicts it for any placement.
    """

    devices: list[tuple[str, int]]
    traffic_bytes: dict[str, float]
    lower_bound_bytes: float
    proved_optimal: bool
    method: str = ""
    notes: list[str] = field(default_factory=list)
    spares: list[str] = field(default_factory=list)
    node_link_s: float | None = None
    communication_s: float | None = None
    communication_bound_s: float | None = None

    @property
    def cross_spine_bytes(self) -> float:
        """Bytes a step whose two ends meet only at the last tier."""
        return self.traffic_bytes[list(self.traffic_bytes)[-1]]

    @property
    def gap(self) -> float:
        """Cross-spine bytes over the bound, less one; 0 when both are 0, inf over a bound of 0."""
        if self.cross_spine_bytes <= self.lower_bound_bytes:
            return 0.0
        if self.lower_bound_bytes == 0:
            return math.inf
        return self.cross_spine_bytes / self.lower_bound_bytes - 1.0

    def to_data(self) -> dict[str, Any]:
        """Plain data in the format `railweave.placement/1`; an infinite gap is null."""
        data: dict[str, Any] = {
            "format": FORMAT,
            "devices": [[node, index] for node, index in self.devices],
            "traffic_bytes": self.traffic_bytes,
            "lower_bound_bytes": self.lower_bound_bytes,
            "gap": self.gap if math.isfinite(self.gap) else None,
            "proved_optimal": self.proved_optimal,
            "method": self.method,
            "notes": self.notes,
            "spares": self.spares,
        }
        if self.node_link_s is not None:
            data["node_link_s"] = self.node_link_s
        if self.communication_s is not None:
            data["communication_s"] = self.communication_s
            data["communication_bound_s"] = self.communication_bound_s
        return data

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the placement file (JSON)."""
        write_text_atomically(path, json.dumps(self.to_data(), allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a placement file. Raises InvalidInput."""
        return cls.parse(read_data(path), os.fspath(path))

    @classmethod
    def parse(cls, data: Any, source: str = "placement") -> Self:
        """A placement from plain data. Raises InvalidInput."""
        record = validated(_Record, data, source, FORMAT)
        return cls(
            devices=list(record.devices),
            traffic_bytes=dict(record.traffic_bytes),
            lower_bound_bytes=record.lower_bound_bytes,
            proved_optimal=record.proved_optimal,
            method=record.method,
            notes=list(record.notes),
            spares=list(record.spares),
            node_link_s=record.node_link_s,
            communication_s=record.communication_s,
            communication_bound_s=record.communication_bound_s,
        )


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid")

    format: str
    devices: list[tuple[Name, Annotated[Index, Field(ge=0)]]]
    traffic_bytes: dict[str, NonNegative] = Field(min_length=1)
    lower_bound_bytes: NonNegative
    gap: NonNegative | None = None
    proved_optimal: bool
    method: str = ""
    notes: list[str] = []
    spares: list[Name] = []
    node_link_s: NonNegative | None = None
    communication_s: NonNegative | None = None
    communication_bound_s: NonNegative | None = None
