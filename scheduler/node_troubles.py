"""What agents find wrong with their nodes, brought into the history: each thing once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..agents.troubles import Kind, Trouble
from .core import Core

_KINDS = frozenset(kind.value for kind in Kind)
_MOST_EVENTS = 100_000


class NodeTroubles:
    """The troubles that were taken in so far; what must be remembered stands in the events."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._taken: dict[tuple[str, str], int] | None = None

    def take(
        self,
        node: str,
        told: Iterable[tuple[str, int, dict[str, Any]]],
        act: Callable[[Trouble, str], None],
    ) -> None:
        """Act on what is new, then write it into the history.

        act: called with each and with what names it; again where a daemon was killed in between.
        """
        for source, number, fields in told:
            taken = self._so_far()
            if number <= taken.get((node, source), 0):
                continue
            trouble = Trouble.model_validate(fields)
            data = {**trouble.data, "node": node, "source": source, "number": number}
            if trouble.device is not None:
                data["device"] = trouble.device
            act(trouble, f"trouble {number} of {source}")
            self._core.note(trouble.kind.value, f"{node}: {trouble.message}", data=data)
            taken[node, source] = number

    def _so_far(self) -> dict[tuple[str, str], int]:
        """The highest number taken of each agent's process; a daemon before this one took some."""
        if self._taken is None:
            self._taken = {}
            for event in self._core.store.events(None, 0, _MOST_EVENTS):
                if event.kind in _KINDS and "source" in event.data:
                    key = (str(event.data.get("node")), str(event.data["source"]))
                    self._taken[key] = max(self._taken.get(key, 0), int(event.data["number"]))
        return self._taken
