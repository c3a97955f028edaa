"""Who has been heard of lately. The clock is the caller's."""

from __future__ import annotations


class HeartbeatBook:
    """When each node was last heard of; one that missed `missed` periods in a row is lost.

    Times are seconds of any clock that does not jump, the same one in every call.
    """

    def __init__(self, period_s: float = 1.0, missed: int = 3) -> None:
        if period_s <= 0 or missed < 1:
            raise ValueError(
                f"a period of {period_s} s and {missed} missed beats cannot be kept; "
                "give a positive period and at least 1"
            )
        self.period_s = period_s
        self.missed = missed
        self._heard_at: dict[str, float] = {}

    def observe(self, node: str, now: float) -> None:
        """A sign of life; one that arrives late does not undo a newer one."""
        self._heard_at[node] = max(now, self._heard_at.get(node, now))

    def forget(self, node: str) -> None:
        """Stop watching a node, as after it was found lost and replaced."""
        self._heard_at.pop(node, None)

    def silence_s(self, node: str, now: float) -> float | None:
        """How long a node has been silent; None for a node that is not watched."""
        heard_at = self._heard_at.get(node)
        return None if heard_at is None else max(0.0, now - heard_at)

    def lost(self, now: float) -> tuple[str, ...]:
        """The watched nodes that have been silent for too long, by name."""
        limit_s = self.period_s * self.missed
        return tuple(sorted(n for n, at in self._heard_at.items() if now - at > limit_s))
