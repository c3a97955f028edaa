"""RDMA devices (InfiniBand, RoCE, EFA) as sysfs shows them, also those without an interface."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from ..placement.names import natural
from .nics import LinkState
from .pci import ADDRESS, text

_RATE = re.compile(r"([0-9.]+) Gb/sec")
# The port states of InfiniBand's PortInfo, of which only ACTIVE carries traffic.
_STATES = {
    "ACTIVE": LinkState.UP,
    "ACTIVE_DEFER": LinkState.UP,
    "DOWN": LinkState.DOWN,
    "INIT": LinkState.DOWN,
    "ARMED": LinkState.DOWN,
    "NOP": LinkState.UNKNOWN,
}


class RdmaDevice(BaseModel):
    """One device by its name under /sys/class/infiniband. Unknown facts are None or empty.

    bytes_per_s: of its fastest port that is up, in one direction; of its fastest where none is.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    state: LinkState
    bytes_per_s: float | None = None
    link_layer: str = ""
    pci_address: str | None = None
    driver: str = ""
    firmware: str = ""
    board: str = ""


def read_rdma(sysfs: Path) -> tuple[RdmaDevice, ...]:
    """Every RDMA device, by name; empty where the kernel has none."""
    try:
        folders = sorted(
            (sysfs / "class/infiniband").iterdir(), key=lambda folder: natural(folder.name)
        )
    except OSError:
        return ()
    return tuple(_read(folder) for folder in folders)


def _read(folder: Path) -> RdmaDevice:
    ports = []
    for port in sorted(folder.glob("ports/*")):
        word = (text(port / "state") or "").rpartition(":")[2].strip().upper()
        rate = _RATE.match(text(port / "rate") or "")
        ports.append(
            (_STATES.get(word, LinkState.UNKNOWN), float(rate[1]) * 1e9 / 8 if rate else None, port)
        )
    up = [port for port in ports if port[0] is LinkState.UP]
    states = {state for state, _, _ in ports}
    device = folder / "device"
    pci = device.resolve().name if device.exists() else ""
    driver = device / "driver"
    return RdmaDevice(
        name=folder.name,
        state=LinkState.UP if up else states.pop() if len(states) == 1 else LinkState.DOWN,
        bytes_per_s=max((rate for _, rate, _ in up or ports if rate), default=None),
        link_layer=next((text(port / "link_layer") or "" for _, _, port in ports), ""),
        pci_address=pci if ADDRESS.fullmatch(pci) else None,
        driver=driver.resolve().name if driver.exists() else "",
        firmware=text(folder / "fw_ver") or "",
        board=text(folder / "board_id") or "",
    )
