"""One end of probes: the NICs of a node, and what probes may be asked of it."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from .bound_socket import Via
from .netprobe import Budget, Listener, Opening, PathMeasurement, ProbeFailed, connect
from .trace import TracedPath, TraceLimits, equal_cost_paths, trace

MOST_PATHS = 32
"""Equal-cost paths of a pair that are measured apart; more have no ports of their own sampled."""
_PORTS_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_PORTS = (32768, 60999)


class NicAddress(BaseModel):
    """Where a rail's NIC is reached. device: its name, to send through it whatever routes say."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    address: str = Field(min_length=1)
    device: str | None = None


class ProbeOrder(BaseModel):
    """What to measure between two nodes, and what it may cost.

    budget: of each connection. rail: the NIC at both ends. trace_ports: from how many source ports
    the path is traced first; 0 traces nothing. each_path: whether every path that the trace finds
    is measured, instead of one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    budget: Budget = Budget()
    rail: int = Field(default=0, ge=0)
    trace_ports: int = Field(default=0, ge=0, le=256)
    trace: TraceLimits = TraceLimits()
    each_path: bool = False

    @property
    def connections(self) -> int:
        """How many connections a probe may have."""
        return max(1, min(self.trace_ports, MOST_PATHS)) if self.each_path else 1

    @property
    def deadline_s(self) -> float:
        """By when a probe is over or has failed."""
        traces_s = self.trace.deadline_s if self.trace_ports else 0.0
        return traces_s + self.connections * self.budget.deadline_s

    @property
    def most_bytes(self) -> int:
        """What a probe may move, both directions together."""
        return self.connections * self.budget.most_bytes


class PathProbe(BaseModel):
    """A connection of a probe: its path where traced, what was measured, or why nothing was."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    hops: tuple[str, ...] | None = None
    source_port: int = 0
    measured: PathMeasurement | None = None
    lost: str = ""


class PairProbe(BaseModel):
    """What a probe of a pair came to. traced: the path of every source port that was tried."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    paths: tuple[PathProbe, ...]
    traced: tuple[TracedPath, ...] = ()


class ProbeEnd:
    """A node's part in probes, by its NICs in the order of rails."""

    def __init__(self, nics: Sequence[NicAddress]) -> None:
        self._nics = tuple(nics)

    def listen(self, order: ProbeOrder) -> Opening:
        """Expect one probe; what the other end needs for it. Raises OSError, ProbeFailed."""
        nic = self._nic(order.rail)
        listener = Listener(
            nic.address,
            order.budget,
            device=nic.device,
            connections=order.connections,
            begin_s=order.trace.deadline_s if order.trace_ports else 0.0,
        )
        return listener.opening

    def connect(self, opening: Opening, order: ProbeOrder) -> PairProbe:
        """Probe the paths to an end that expects it. Raises ProbeFailed."""
        nic = self._nic(order.rail)
        via = Via(address=nic.address, device=nic.device)
        if not order.trace_ports:
            return PairProbe(paths=(PathProbe(measured=connect(opening, order.budget, via)),))
        try:
            traced = trace(
                opening.host, opening.port, _source_ports(order.trace_ports), via, order.trace
            )
        except OSError as error:
            raise ProbeFailed(f"no trace from {via}: {error}") from error
        found = list(equal_cost_paths(traced).items())[: order.connections]
        if not found:
            ends = ", ".join(sorted({path.hops[-1] for path in traced if path.hops})) or "here"
            return PairProbe(
                paths=(PathProbe(hops=None, lost=f"no port came through; paths end at {ends}"),),
                traced=traced,
            )
        paths = []
        for number, (hops, ports) in enumerate(found, start=1):
            more = number < len(found)
            try:
                measured = connect(opening, order.budget, via.at(ports[0]), more=more)
                probe = PathProbe(hops=hops, source_port=ports[0], measured=measured)
            except ProbeFailed as error:
                probe = PathProbe(hops=hops, source_port=ports[0], lost=str(error))
            paths.append(probe)
        return PairProbe(paths=tuple(paths), traced=traced)

    def _nic(self, rail: int) -> NicAddress:
        if rail >= len(self._nics):
            names = ", ".join(str(nic.device or nic.address) for nic in self._nics)
            raise ProbeFailed(f"no NIC for rail {rail}; this node has {len(self._nics)}: {names}")
        return self._nics[rail]


def _source_ports(count: int) -> list[int]:
    """Ports at random out of those the kernel takes for connections."""
    try:
        low, high = (int(part) for part in _PORTS_FILE.read_text().split())
    except (OSError, ValueError):
        low, high = _PORTS
    every = range(low, high + 1)
    return secrets.SystemRandom().sample(every, min(count, len(every)))
