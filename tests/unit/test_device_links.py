"""Links between a node's devices: as the driver tells them, into the cluster's description."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from railweave.agents.assemble import assemble_cluster
from railweave.agents.device_links import read_device_links
from railweave.agents.inventory import Device, NodeInventory


class _Error(Exception):
    pass


class RecordedLinks:
    """NVML's functions over recorded links: for each device a list of what each NVLink leads to."""

    NVMLError = _Error

    def __init__(self, links: list[list[int | str | None]], sockets: list[int]) -> None:
        self._links, self._sockets = links, sockets

    def nvmlDeviceGetPciInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(busId=f"00000000:{handle:02X}:00.0".encode())

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        if link >= len(self._links[handle]):
            raise _Error("no such link")
        return int(self._links[handle][link] is not None)

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: int, link: int) -> int:
        return 2 if self._links[handle][link] == "switch" else 0

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: int, link: int) -> SimpleNamespace:
        return SimpleNamespace(busId=f"00000000:{self._links[handle][link]:02x}:00.0")

    def nvmlDeviceGetTopologyCommonAncestor(self, one: int, other: int) -> int:
        return 10 if self._sockets[one] == self._sockets[other] else 50


def test_direct_links_are_counted_and_the_rest_goes_over_pcie() -> None:
    binding = RecordedLinks([[1, 1, None], [0, 0], [], []], sockets=[0, 0, 1, 1])
    assert read_device_links(binding, range(4)) == (
        ("X", "NV2", "SYS", "SYS"),
        ("NV2", "X", "SYS", "SYS"),
        ("SYS", "SYS", "X", "PIX"),
        ("SYS", "SYS", "PIX", "X"),
    )


def test_links_through_switches_join_every_pair_by_what_the_lesser_has() -> None:
    binding = RecordedLinks([["switch"] * 18, ["switch"] * 18, ["switch"] * 17], [0, 0, 1])
    assert read_device_links(binding, range(3)) == (
        ("X", "NV18", "NV17"),
        ("NV18", "X", "NV17"),
        ("NV17", "NV17", "X"),
    )


def test_a_driver_that_does_not_tell_leaves_links_unknown() -> None:
    class Old(RecordedLinks):
        def nvmlDeviceGetTopologyCommonAncestor(self, one: int, other: int) -> int:
            raise _Error("not supported")

    assert read_device_links(Old([[], []], [0, 1]), range(2)) == ()


def inventory(name: str, links: Any) -> NodeInventory:
    devices = tuple(Device(index=i, accelerator="A") for i in range(2))
    return NodeInventory(node=name, host=name, cpus=1, memory_bytes=1, devices=devices, links=links)


def test_nodes_with_equal_links_share_one_description_in_the_cluster() -> None:
    joined, apart = (("X", "NV4"), ("NV4", "X")), (("X", "SYS"), ("SYS", "X"))
    nodes = [
        inventory("a", joined),
        inventory("b", apart),
        inventory("c", joined),
        inventory("d", ()),
        inventory("e", (("X",),)),
        inventory("f", (("X", "NV4"), ("SYS", "X"))),
    ]
    cluster = assemble_cluster(nodes, [], {node.node: {} for node in nodes}).cluster
    named = [node.links for node in cluster.nodes]
    assert named[0] == named[2] != named[1]
    assert named[3:] == [None, None, None]
    assert {name: links.matrix for name, links in cluster.links.items()} == {
        named[0]: joined,
        named[1]: apart,
    }
