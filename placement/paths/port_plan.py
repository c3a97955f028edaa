"""The port plan `railweave.ports/1`: a source port for every connection, and how full links get."""

from __future__ import annotations

import json
import os
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from ..files import read_data, validated, write_text_atomically
from ..quantities import NonNegative

FORMAT: Final = "railweave.ports/1"


class PlannedConnection(BaseModel):
    """A connection with the source port to bind and the uplinks it then takes.

    upper_uplink: of the switch that the first uplink leads to; None where that layer is not planned
        or not used.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    src: str
    dst: str
    dst_port: int = Field(ge=1, le=65535)
    src_port: int = Field(ge=1, le=65535)
    uplink: int = Field(ge=0)
    upper_uplink: int | None = Field(default=None, ge=0)
    bytes: NonNegative


class LinkLoad(BaseModel):
    """The fullest link: connections on it, and bytes a step on the one with most bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    connections: int = Field(ge=0)
    bytes: NonNegative


class LayerLoads(BaseModel):
    """How full the links between two layers of switches get.

    uplinks: of each switch of the lower layer.
    least_connections: no choice of uplinks has a fullest link with fewer connections.
    planned, greedy, default: the fullest link with the planned ports, with the uplinks that the
        greedy rule takes, and with random ports (None when the hash does not know those).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    uplinks: int = Field(ge=1)
    least_connections: int = Field(ge=0)
    planned: LinkLoad
    greedy: LinkLoad
    default: LinkLoad | None


class PortPlan(BaseModel):
    """Ports for every connection that leaves its first switch.

    first: the links out of the first switches; upper: those a layer further up, when planned.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal["railweave.ports/1"] = FORMAT
    first: LayerLoads
    upper: LayerLoads | None = None
    connections: tuple[PlannedConnection, ...]

    def to_data(self) -> dict[str, Any]:
        """Plain data in the format `railweave.ports/1`."""
        data: dict[str, Any] = self.model_dump(mode="json")
        return data

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan (JSON)."""
        write_text_atomically(path, json.dumps(self.to_data(), allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a plan. Raises InvalidInput."""
        return validated(cls, read_data(path), os.fspath(path), FORMAT)

    @classmethod
    def parse(cls, data: Any, source: str = "ports") -> Self:
        """A plan from plain data. Raises InvalidInput."""
        return validated(cls, data, source, FORMAT)
