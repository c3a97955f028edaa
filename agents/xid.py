"""What NVIDIA's Xid numbers say about a device: whether it is broken, or a program made a mistake.

Source: NVIDIA, "XID Errors" (r570), section "Xid Error Listing".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Blame(StrEnum):
    """Who is to be blamed for an Xid."""

    DEVICE = "device"
    """The device, its memory, its links or its firmware: nothing should be started on it."""
    PROGRAM = "program"
    """What ran on it; the device goes on."""
    UNKNOWN = "unknown"
    """A number of which this table says nothing: told, but not acted upon."""


@dataclass(frozen=True)
class Xid:
    """A number, what it means, and whom it blames."""

    number: int
    meaning: str
    blame: Blame


_DEVICE = {
    48: "double bit ECC error",
    62: "internal micro-controller halt",
    64: "row remapping failed",
    74: "NVLink error",
    79: "the device has fallen off the bus",
    92: "high rate of single bit ECC errors",
    95: "uncontained memory error",
    110: "security fault",
    119: "the GSP firmware does not answer",
    120: "error in the GSP firmware",
    121: "C2C link corrected error",
    136: "NVLink training failed",
    140: "unrecovered ECC error",
    143: "the device could not be initialised",
    144: "NVLink: SAW error",
    145: "NVLink: RLW error",
    146: "NVLink: TLW error",
    147: "NVLink: TREX error",
    148: "NVLink: NVLPW control error",
    149: "NVLink: NETIR error",
    150: "NVLink: MSE error",
}
_PROGRAM = {
    8: "the device stopped processing",
    13: "graphics engine exception",
    31: "memory page fault",
    32: "invalid or corrupted push buffer",
    43: "the device stopped processing a program",
    45: "a program was ended on the device",
    63: "a row of memory is remapped at the next reset",
    68: "NVDEC0 exception",
    69: "graphics engine class error",
    94: "contained memory error; programs on the device must start anew",
    109: "context switch timeout",
}


def xid(number: int) -> Xid:
    """What a number means; UNKNOWN for one that is not in the table."""
    if number in _DEVICE:
        return Xid(number, _DEVICE[number], Blame.DEVICE)
    if number in _PROGRAM:
        return Xid(number, _PROGRAM[number], Blame.PROGRAM)
    return Xid(number, "not in the table of known numbers", Blame.UNKNOWN)
