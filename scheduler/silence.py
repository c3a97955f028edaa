"""What it means that a node is not heard of: it is dead, it hangs, or the way to it is cut. Pure.

Four things tell them apart: signs of life of its processes, acknowledgements of its kernel on the
line to it, what its peers reach, and how many other nodes are out of reach at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..placement.names import some
from .fault import FaultKind

MOST_WITNESSES = 3
"""How many other nodes are asked whether they reach one that the head does not."""


@dataclass(frozen=True)
class Silence:
    """What is known of a node that is not heard of.

    silent_s: since its processes last showed a sign of life. limit_s: after how long that counts.
    line_holds: whether its kernel still acknowledges what is sent to it; None where there is no
    line, as when the agent's process has ended. takes_calls: whether its kernel was asked then, and
    took a call for another process of the node. reached_by, not_reached_by: peers that were asked,
    after the line had broken. out, watched: how many nodes, this one included, are out of the
    head's reach now, of how many.
    """

    silent_s: float
    limit_s: float
    line_holds: bool | None = None
    takes_calls: bool = False
    reached_by: tuple[str, ...] = ()
    not_reached_by: tuple[str, ...] = ()
    out: int = 0
    watched: int = 0

    @property
    def head_cut_off(self) -> bool:
        """Whether the head reaches no node at all any more, though it has several."""
        return self.watched > 2 and self.out == self.watched


@dataclass(frozen=True)
class Meaning:
    """What a silence means: the kind of fault, or None while it is not long enough; and why."""

    kind: FaultKind | None
    why: str


def meaning(silence: Silence) -> Meaning:
    """What a node's silence means by now.

    A machine that acknowledges nothing and that no peer reaches is lost at once. Everything that
    may pass by itself, a cut way to a machine that lives or a hang, is waited for until the limit.
    """
    over = silence.silent_s > silence.limit_s
    told = f"no sign of life for {silence.silent_s:.1f} s"
    if silence.line_holds is False:
        if silence.head_cut_off:
            why = f"{told}; the head reaches none of its {silence.watched} nodes"
            return Meaning(FaultKind.PARTITION if over else None, why)
        if silence.reached_by:
            why = f"{told}; the head does not reach it, {some(silence.reached_by)} can"
            return Meaning(FaultKind.PARTITION if over else None, why)
        others = some(silence.not_reached_by)
        who = f"neither the head nor {others} reach it" if others else "it cannot be reached"
        return Meaning(FaultKind.NODE_LOST, f"{told}, {who}")
    if not over:
        return Meaning(None, told)
    if silence.line_holds:
        why = f"{told} of its agent, though the machine itself answers: its processes hang"
        return Meaning(FaultKind.NODE_HUNG, why)
    if silence.takes_calls:
        why = f"{told}; its agent is gone and does not come back, though the machine itself answers"
        return Meaning(FaultKind.NODE_HUNG, why)
    return Meaning(FaultKind.NODE_LOST, told)
