"""How many strategies were considered, and what became of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

MEMORY = "memory"
BOUND = "bound"
ESTIMATED = "estimated"


@dataclass
class Tally:
    """Strategies by what became of them.

    estimated: worked out in full, and they fit. memory: they do not fit. bound: no better than what
    was found already, by a bound, rules and memory not looked at. Others: the rule that they break,
    by its name.
    """

    counts: Counter[str] = field(default_factory=Counter)

    def add(self, reason: str, count: int) -> None:
        """Count strategies."""
        if count:
            self.counts[reason] += count

    @property
    def considered(self) -> int:
        """All of them."""
        return self.counts.total()

    def to_data(self) -> dict[str, int]:
        """Counts by reason, `considered` first; rules after the other reasons, in their order."""
        first = {name: self.counts[name] for name in (ESTIMATED, MEMORY, BOUND)}
        rules = {n: c for n, c in sorted(self.counts.items()) if n not in first}
        return {"considered": self.considered, **first, **rules}
