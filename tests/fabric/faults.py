"""What can go wrong with a fabric, each with its way back."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from . import namespaces
from .delay_line import DelayLine
from .fabric import Fabric
from .hosts import end_processes
from .shaping import set_rate
from .topology import Wire


class Faults:
    """Faults of a fabric that is up; each lasts as long as its `with`.

    Wires are named by leaf switch and spine. A wire that is down takes its routes with it, as a
    routing protocol would; with `converged=False` the other leaves do not hear of it and go on
    sending over it.
    """

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._down: set[int] = set()
        self._withdrawn: set[int] = set()

    @contextmanager
    def wire_down(self, switch: int, spine: int, *, converged: bool = True) -> Iterator[None]:
        """A link between leaf and spine is dead: both ends lose their carrier."""
        number = self._number(switch, spine)
        self._down.add(number)
        if converged:
            self._withdrawn.add(number)
        self._switch(self._fabric.wires[number], "down")
        try:
            yield
        finally:
            self._down.discard(number)
            self._withdrawn.discard(number)
            self._switch(self._fabric.wires[number], "up")

    @contextmanager
    def wire_slow(self, switch: int, spine: int, mbit: float) -> Iterator[None]:
        """A link between leaf and spine has less bandwidth, in both directions."""
        wire = self._fabric.wires[self._number(switch, spine)]
        self._shape(wire, mbit)
        try:
            yield
        finally:
            self._shape(wire, wire.mbit)

    @contextmanager
    def wire_late(self, switch: int, spine: int, delay_s: float) -> Iterator[None]:
        """A link between leaf and spine takes longer, in both directions."""
        number = self._number(switch, spine)
        self._line.set_wire(number, delay_s=delay_s)
        try:
            yield
        finally:
            self._line.set_wire(number, delay_s=self._fabric.wires[number].delay_s)

    @contextmanager
    def wire_lossy(self, switch: int, spine: int, loss: float) -> Iterator[None]:
        """A link between leaf and spine loses this part of its frames, in both directions."""
        number = self._number(switch, spine)
        self._line.set_wire(number, loss=loss)
        try:
            yield
        finally:
            self._line.set_wire(number, loss=0.0)

    @contextmanager
    def partition(self, one: Collection[int], other: Collection[int]) -> Iterator[None]:
        """Leaf switches of the two sides do not reach each other; nothing says so."""
        subnets = {k: self._fabric.plan.gateway(k).rpartition(".")[0] for k in {*one, *other}}
        cut = [(subnets[a], subnets[b]) for a in one for b in other]
        self._line.set_partition([*cut, *((sink, source) for source, sink in cut)])
        try:
            yield
        finally:
            self._line.set_partition([])

    @contextmanager
    def one_way(self, source: int, sink: int) -> Iterator[None]:
        """What hosts below one leaf switch send to those below another is lost; nothing says so."""
        names = [self._fabric.plan.gateway(k).rpartition(".")[0] for k in (source, sink)]
        self._line.set_partition([(names[0], names[1])])
        try:
            yield
        finally:
            self._line.set_partition([])

    @contextmanager
    def nic_down(self, host: str, rail: int = 0) -> Iterator[None]:
        """A host's cable is pulled."""
        leaf, port = self._port(host, rail)
        namespaces.ip([f"link set {port} down"], leaf)
        try:
            yield
        finally:
            namespaces.ip([f"link set {port} up"], leaf)

    @contextmanager
    def nic_slow(self, host: str, mbit: float, rail: int = 0) -> Iterator[None]:
        """A host's NIC has less bandwidth, in both directions."""
        plan = self._fabric.plan
        ends = (self._port(host, rail), (self._fabric.namespace(host), f"eth{rail}"))
        for namespace, device in ends:
            set_rate(namespace, device, mbit, plan.mtu_bytes)
        try:
            yield
        finally:
            for namespace, device in ends:
                set_rate(namespace, device, plan.host_mbit, plan.mtu_bytes)

    @contextmanager
    def power_loss(self, host: str) -> Iterator[None]:
        """A host is gone with everything that ran on it; afterwards it is there, with nothing."""
        rails = range(self._fabric.plan.rails)
        for leaf, port in (self._port(host, rail) for rail in rails):
            namespaces.ip([f"link set {port} down"], leaf)
        end_processes(self._fabric, host)
        try:
            yield
        finally:
            for leaf, port in (self._port(host, rail) for rail in rails):
                namespaces.ip([f"link set {port} up"], leaf)

    @property
    def _line(self) -> DelayLine:
        line = self._fabric.line
        assert line is not None, "the fabric is not up"
        return line

    def _number(self, switch: int, spine: int) -> int:
        return switch * self._fabric.plan.spines + spine

    def _port(self, host: str, rail: int) -> tuple[str, str]:
        found = self._fabric.hosts[host]
        return self._fabric.leaf(found.leaf * self._fabric.plan.rails + rail), f"p{found.index}"

    def _shape(self, wire: Wire, mbit: float) -> None:
        mtu_bytes = self._fabric.plan.mtu_bytes
        set_rate(self._fabric.leaf(wire.switch), f"up{wire.spine}", mbit, mtu_bytes)
        set_rate(self._fabric.spine(wire.spine), f"dn{wire.switch}", mbit, mtu_bytes)

    def _switch(self, wire: Wire, state: str) -> None:
        fabric = self._fabric
        namespaces.ip([f"link set up{wire.spine} {state}"], fabric.leaf(wire.switch))
        namespaces.ip([f"link set dn{wire.switch} {state}"], fabric.spine(wire.spine))
        if state == "up":
            namespaces.ip([fabric.spine_route(wire)], fabric.spine(wire.spine))
        for switch in range(fabric.plan.switches):
            self._route(switch)

    def _route(self, switch: int) -> None:
        """Give a leaf switch the routes that the wires which are up allow."""
        fabric = self._fabric
        own = {w.spine: w for n, w in enumerate(fabric.wires) if w.switch == switch}
        mine = {fabric.wires[n].spine for n in self._down if fabric.wires[n].switch == switch}
        lines = []
        for other in range(fabric.plan.switches):
            if other == switch:
                continue
            theirs = {
                fabric.wires[n].spine for n in self._withdrawn if fabric.wires[n].switch == other
            }
            over = [wire for spine, wire in own.items() if spine not in mine | theirs]
            if over:
                lines.append(fabric.route(over, other))
        namespaces.ip(lines, fabric.leaf(switch))
