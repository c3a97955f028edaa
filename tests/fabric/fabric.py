"""Bringing a fabric up and taking it down."""

from __future__ import annotations

import os
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from . import namespaces
from .delay_line import DelayLine, open_tap
from .shaping import bucket
from .topology import Host, Plan, Wire

_QUIET = {"ipv6/conf/all/disable_ipv6": "1"}
_ROUTER = {
    **_QUIET,
    "ipv4/ip_forward": "1",
    # Policy 1 does not hash ports over veth. Field mask: addresses, protocol, ports.
    "ipv4/fib_multipath_hash_fields": "55",
    "ipv4/fib_multipath_hash_policy": "3",
    "ipv4/conf/all/rp_filter": "0",
    "ipv4/conf/default/rp_filter": "0",
    # A path trace of many ports at once must get all of its answers.
    "ipv4/icmp_ratelimit": "0",
    "ipv4/icmp_msgs_per_sec": "100000",
    "ipv4/icmp_msgs_burst": "10000",
    "ipv4/icmp_errors_use_inbound_ifaddr": "1",
}
# Reno is in every kernel and allowed in every namespace; a kernel's default may be another.
# Windows end below the queues: what a short transfer measures is the rate, not TCP's recovery.
WINDOW_BYTES = 256 * 1024
_HOST = {
    **_QUIET,
    "ipv4/tcp_congestion_control": "reno",
    "ipv4/tcp_rmem": f"4096 131072 {2 * WINDOW_BYTES}",
}


class Fabric:
    """A fabric that is up between `__enter__` and `__exit__`, or until the process ends.

    Hosts, leaf switches and spines are network namespaces whose names start with `marker`. Each
    host's NIC of rail r is `eth<r>`, joined to a bridge in its leaf switch; leaf switches and
    spines are joined through the delay line. Leaves reach each other over all spines at once, by
    a hash of addresses, protocol and ports.
    """

    def __init__(self, plan: Plan, seed: int = 0) -> None:
        self.plan = plan
        self.marker = namespaces.new_marker()
        self.hosts = {host.name: host for host in plan.hosts()}
        self.wires = list(plan.wires())
        self._seed = seed
        self.line: DelayLine | None = None

    def namespace(self, host: Host | str) -> str:
        """The namespace of a host."""
        return f"{self.marker}-{host if isinstance(host, str) else host.name}"

    def leaf(self, switch: int) -> str:
        """The namespace of a leaf switch."""
        return f"{self.marker}-leaf{switch}"

    def spine(self, spine: int) -> str:
        """The namespace of a spine."""
        return f"{self.marker}-spine{spine}"

    def environment(self) -> dict[str, str]:
        """What every process of the fabric has in its environment, so that it can be found."""
        return {**os.environ, namespaces.ENVIRONMENT: self.marker}

    def __enter__(self) -> Self:
        namespaces.remove_abandoned()
        try:
            self._up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()

    def down(self) -> None:
        """End every process of the fabric and remove its namespaces. Idempotent."""
        line, self.line = self.line, None
        if line is not None:
            line.close()
        namespaces.remove(self.marker)

    def _up(self) -> None:
        plan = self.plan
        hosts = [self.namespace(host) for host in self.hosts]
        routers = [self.leaf(k) for k in range(plan.switches)]
        routers += [self.spine(s) for s in range(plan.spines)]
        namespaces.ip(f"netns add {name}" for name in [*hosts, *routers])
        for names, values in ((hosts, _HOST), (routers, _ROUTER)):
            for name in names:
                namespaces.set_kernel(name, values)
        namespaces.ip(
            f"link add eth{rail} mtu {plan.mtu_bytes} netns {self.namespace(host)} type veth "
            f"peer name p{host.index} mtu {plan.mtu_bytes} "
            f"netns {self.leaf(host.leaf * plan.rails + rail)}"
            for host in self.hosts.values()
            for rail in range(plan.rails)
        )
        for host in self.hosts.values():
            self._set_up_host(host)
        self.line = self._joined()
        for switch in range(plan.switches):
            self._set_up_leaf(switch)
        for spine in range(plan.spines):
            self._set_up_spine(spine)

    def _set_up_host(self, host: Host) -> None:
        plan, name = self.plan, self.namespace(host)
        everyone = f"10.{plan.subnet}.0.0/16"
        lines = ["link set lo up"]
        for rail, address in enumerate(host.addresses):
            gateway = plan.gateway(host.leaf * plan.rails + rail)
            lines += [
                f"addr add {address}/24 dev eth{rail}",
                f"link set eth{rail} up",
                # No default route: what is outside the fabric (name servers) fails at once.
                f"route add {everyone} via {gateway} dev eth{rail} metric {100 + rail}",
            ]
        namespaces.ip(lines, name)
        shape = (
            bucket("add", f"eth{r}", plan.host_mbit, plan.mtu_bytes) for r in range(plan.rails)
        )
        namespaces.tc(shape, name)

    def _joined(self) -> DelayLine:
        wires = []
        for number, wire in enumerate(self.wires):
            up, down = f"up{wire.spine}", f"dn{wire.switch}"
            one = namespaces.within(self.leaf(wire.switch), lambda name=up: open_tap(name))
            other = namespaces.within(self.spine(wire.spine), lambda name=down: open_tap(name))
            wires.append((number, one, other, wire.delay_s))
        return DelayLine(wires, self._seed, self.environment())

    def _set_up_leaf(self, switch: int) -> None:
        plan, name = self.plan, self.leaf(switch)
        ports = [f"p{index}" for index in range(plan.hosts_per_leaf)]
        wires = [wire for wire in self.wires if wire.switch == switch]
        lines = [
            "link set lo up",
            "link add br0 type bridge forward_delay 0",
            f"link set br0 mtu {plan.mtu_bytes} up",
            f"addr add {plan.gateway(switch)}/24 dev br0",
            *(f"link set {port} master br0 up" for port in ports),
            *self._wire_ends((f"up{w.spine}", w.leaf_address) for w in wires),
            *(self.route(wires, other) for other in range(plan.switches) if other != switch),
        ]
        namespaces.ip(lines, name)
        namespaces.tc(
            [
                *(bucket("add", port, plan.host_mbit, plan.mtu_bytes) for port in ports),
                *(bucket("add", f"up{w.spine}", w.mbit, plan.mtu_bytes) for w in wires),
            ],
            name,
        )

    def route(self, over: list[Wire], to_switch: int) -> str:
        """The line that routes a leaf switch's traffic to another's hosts over these wires."""
        hops = " ".join(f"nexthop via {w.spine_address} dev up{w.spine}" for w in over)
        return f"route replace {self.plan.hosts_subnet(to_switch)} {hops}"

    def _set_up_spine(self, spine: int) -> None:
        wires = [wire for wire in self.wires if wire.spine == spine]
        lines = ["link set lo up"]
        lines += self._wire_ends((f"dn{w.switch}", w.spine_address) for w in wires)
        lines += [self.spine_route(wire) for wire in wires]
        namespaces.ip(lines, self.spine(spine))
        shape = (bucket("add", f"dn{w.switch}", w.mbit, self.plan.mtu_bytes) for w in wires)
        namespaces.tc(shape, self.spine(spine))

    def spine_route(self, wire: Wire) -> str:
        """The line that routes a spine's traffic to the hosts below a wire."""
        subnet = self.plan.hosts_subnet(wire.switch)
        return f"route replace {subnet} via {wire.leaf_address} dev dn{wire.switch}"

    def _wire_ends(self, ends: Iterable[tuple[str, str]]) -> list[str]:
        return [
            line
            for device, address in ends
            for line in (
                f"link set {device} mtu {self.plan.mtu_bytes} up",
                f"addr add {address}/30 dev {device}",
            )
        ]
