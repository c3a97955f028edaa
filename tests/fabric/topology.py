"""What a fabric is made of: its switches, hosts and wires, with their names and addresses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Host:
    """A host: its leaf, its place below it, and its address on each rail."""

    name: str
    leaf: int
    index: int
    addresses: tuple[str, ...]

    @property
    def address(self) -> str:
        """The address of its first NIC."""
        return self.addresses[0]


@dataclass(frozen=True)
class Wire:
    """A link between a leaf switch and a spine, with the address at each end."""

    switch: int
    spine: int
    leaf_address: str
    spine_address: str
    delay_s: float
    mbit: float


@dataclass(frozen=True)
class Plan:
    """Leaves x spines x hosts a leaf; rates in Mbit/s, one direction; delays one way.

    rails: NICs of a host; each leaf has one switch a rail, and every switch is wired to every
        spine. Leaf l's switch of rail r has the number `l * rails + r`.
    subnet: second octet of every address, 10.<subnet>.0.0/16.
    """

    leaves: int = 2
    spines: int = 2
    hosts_per_leaf: int = 4
    rails: int = 1
    host_mbit: float = 100.0
    spine_mbit: float = 25.0
    delay_s: float = 500e-6
    mtu_bytes: int = 9000
    subnet: int = 77

    def __post_init__(self) -> None:
        if not 1 <= self.switches <= 120 or not 1 <= self.spines <= 60:
            raise ValueError(
                f"{self.switches} leaf switches and {self.spines} spines; "
                "addresses are enough for 120 and 60"
            )
        if not 1 <= self.hosts_per_leaf <= 240 or not 1 <= self.subnet <= 254:
            raise ValueError(
                f"{self.hosts_per_leaf} hosts a leaf in 10.{self.subnet}.0.0/16; "
                "addresses are enough for 240, in 10.1 to 10.254"
            )

    @property
    def switches(self) -> int:
        """Leaf switches over all rails."""
        return self.leaves * self.rails

    def gateway(self, switch: int) -> str:
        """A leaf switch's address in the subnet of its hosts."""
        return f"10.{self.subnet}.{switch}.1"

    def hosts_subnet(self, switch: int) -> str:
        """The subnet of the hosts' NICs below a leaf switch."""
        return f"10.{self.subnet}.{switch}.0/24"

    def hosts(self) -> list[Host]:
        """Every host, leaf by leaf."""
        return [
            Host(
                name=f"h{leaf}-{index}",
                leaf=leaf,
                index=index,
                addresses=tuple(
                    f"10.{self.subnet}.{leaf * self.rails + rail}.{10 + index}"
                    for rail in range(self.rails)
                ),
            )
            for leaf in range(self.leaves)
            for index in range(self.hosts_per_leaf)
        ]

    def wires(self) -> Iterator[Wire]:
        """Every link between a leaf switch and a spine."""
        for switch in range(self.switches):
            for spine in range(self.spines):
                start = f"10.{self.subnet}.{128 + switch}."
                yield Wire(
                    switch=switch,
                    spine=spine,
                    leaf_address=f"{start}{4 * spine + 1}",
                    spine_address=f"{start}{4 * spine + 2}",
                    delay_s=self.delay_s,
                    mbit=self.spine_mbit,
                )

    def domains(self) -> dict[str, str]:
        """The leaf of each host: what probing has to find."""
        return {host.name: f"leaf{host.leaf}" for host in self.hosts()}

    @property
    def host_bytes_per_s(self) -> float:
        """What a host's NIC carries in one direction, headers included."""
        return self.host_mbit * 1e6 / 8

    @property
    def spine_bytes_per_s(self) -> float:
        """What a link between leaf and spine carries in one direction, headers included."""
        return self.spine_mbit * 1e6 / 8

    @property
    def oversubscription(self) -> float:
        """NICs below a leaf over its uplinks, by rate."""
        return self.hosts_per_leaf * self.host_mbit / (self.spines * self.spine_mbit)
