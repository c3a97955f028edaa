"""Constraints of a job in words, for those who ask for it."""

from __future__ import annotations

from ..placement.constraints import Constraints, Pin

_SHOWN = 8


def constraint_texts(constraints: Constraints) -> list[str]:
    """Each constraint that is asked for, in the order of `Constraints`."""
    c = constraints
    texts: list[str] = []
    if c.together:
        texts.append(f"{'' if c.together.required else 'preferably '}all in one {c.together.tier}")
    if c.at_most:
        nodes = "1 node" if c.at_most.nodes == 1 else f"{c.at_most.nodes} nodes"
        texts.append(f"at most {nodes} in one {c.at_most.tier}")
    if c.balanced:
        exactly = f", in exactly {c.balanced.domains}" if c.balanced.domains else ""
        texts.append(f"as many ranks in each {c.balanced.tier} as in any other{exactly}")
    if c.segments:
        texts.append(f"every {c.segments.ranks} ranks in a row in one {c.segments.tier}")
    if c.pinned:
        texts.append(_few([_pin(pin) for pin in c.pinned]))
    if c.excluded_nodes:
        texts.append(f"not on {_few(list(c.excluded_nodes))}")
    if c.whole_nodes:
        texts.append("only on nodes of which every device is free")
    if c.spares:
        texts.append("1 spare node" if c.spares == 1 else f"{c.spares} spare nodes")
    if c.same_kind:
        whom = "of the job" if c.same_kind.per == "job" else "that collectives join"
        texts.append(f"one kind of accelerator for all ranks {whom}")
    if c.split_tensor_groups:
        texts.append("tensor-parallel groups may be split")
    return texts


def _pin(pin: Pin) -> str:
    device = "" if pin.device is None else f"device {pin.device} of "
    return f"rank {pin.rank} on {device}{pin.node}"


def _few(words: list[str]) -> str:
    more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return ", ".join(words[:_SHOWN]) + more
