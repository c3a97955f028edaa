"""The nodes' standings as the daemon keeps them: what is held against each, and who is out."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from .core import Core
from .quarantine import NodeFault, NodeRecord, Standing, Why, let_back, remembered, returned, ruled

_DOCUMENT = "node standings"
_KEPT = TypeAdapter(dict[str, Standing])
_FOR_FAULTS = (Why.FAULT, Why.SUSPECTED)
_log = logging.getLogger(__name__)


class Standings:
    """Every node's standing. What is changed here is in the store before it is acted upon."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._known = _read(core.store.document(_DOCUMENT))

    def fault(
        self, node: str, why: Why, message: str, nodes: int, job_id: str = "", origin: str = ""
    ) -> None:
        """Hold a fault against a node and set it aside where the rules say so.

        nodes: how many with devices the cluster has. origin: what told of it; see `NodeFault`.
        """
        core, now_s = self._core, self._core.now_s()
        away = core.store.quarantined()
        others = [name for name in away if name != node and self._of(name).out in _FOR_FAULTS]
        fault = NodeFault(now_s, why, message, job_id, origin)
        rules, before = core.settings.rules, self._of(node)
        if node not in away:
            before = replace(before, out=None)
        ruling = ruled(before, fault, now_s, rules, len(others), nodes)
        with self._kept(node, ruling.standing):
            if ruling.set_aside:
                core.store.quarantine(node, message, now_s, ruling.until_s)
            elif ruling.numbers:
                told = f"{node}: {message}"
                if ruling.capped:
                    told += (
                        f"; it stays in use: {len(others)} nodes are set aside for faults, "
                        f"{rules.most_out(nodes)} of {nodes} may be"
                    )
                data: dict[str, Any] = {"node": node, "why": why.value, **ruling.numbers}
                core.note("node_fault", told, job_id=job_id or None, data=data)
        core.changed()

    def back(self, node: str) -> None:
        """A lost node has returned: it must be well for a while before it is used."""
        found = self._core.store.quarantined().get(node)
        if found is None or found.until_s is not None or self._of(node).out is Why.OPERATOR:
            return
        now_s = self._core.now_s()
        until_s = returned(self._of(node), now_s, self._core.settings.rules)
        self._core.store.quarantine(node, found.reason, now_s, until_s)

    def let_back(self, node: str, why: str) -> None:
        """Use a node again whose time is over; it is on probation from now on."""
        now_s = self._core.now_s()
        with self._kept(node, let_back(self._of(node), now_s, self._core.settings.rules)):
            self._core.store.release(node, why, now_s)

    def shift(self, jump_s: float) -> None:
        """The clock was set: nodes that are out for a time stay out for what was left of it."""
        now_s = self._core.now_s()
        for node, found in self._core.store.quarantined().items():
            if found.until_s is not None:
                until_s = found.until_s + jump_s
                self._core.store.quarantine(node, found.reason, now_s, until_s)

    def set_aside(self, node: str, reason: str, for_s: float | None) -> None:
        """Keep a node out because somebody asked for it, in place of any other reason."""
        now_s = self._core.now_s()
        until_s = None if for_s is None else now_s + for_s
        with self._kept(node, replace(self._of(node), out=Why.OPERATOR)):
            self._core.store.release(node, "set aside on request instead", now_s)
            self._core.store.quarantine(node, reason, now_s, until_s)

    def release(self, node: str) -> bool:
        """Use a node again because somebody asked for it, and forget its faults.

        False when it was not kept out.
        """
        with self._kept(node, Standing()):
            return self._core.store.release(node, "released on request", self._core.now_s())

    def lost(self) -> set[str]:
        """Nodes that are out because they were lost, be it that they are back and must be well."""
        return {n for n in self._core.store.quarantined() if self._of(n).out is Why.LOST}

    def records(self, names: set[str]) -> list[NodeRecord]:
        """Standings of these nodes and of all that anything is held against, by name."""
        now_s, rules = self._core.now_s(), self._core.settings.rules
        away = self._core.store.quarantined()
        found = []
        for name in sorted(names | away.keys() | self._known.keys()):
            standing, out = remembered(self._of(name), now_s, rules), away.get(name)
            found.append(
                NodeRecord(
                    name=name,
                    out=(standing.out or Why.LOST) if out else None,
                    reason=out.reason if out else "",
                    since_s=out.since_s if out else None,
                    until_s=out.until_s if out else None,
                    faults=standing.faults,
                    trial_until_s=standing.trial_until_s,
                )
            )
        return found

    def _of(self, node: str) -> Standing:
        return self._known.get(node, Standing())

    @contextmanager
    def _kept(self, node: str, standing: Standing) -> Iterator[None]:
        """Keep a standing along with what is written inside: a daemon may be killed in between."""
        known = {**self._known, node: standing}
        if standing == Standing():
            del known[node]
        with self._core.store.together():
            if known != self._known:
                content = _KEPT.dump_python(known, mode="json")
                self._core.store.put_document(_DOCUMENT, content, self._core.now_s())
            yield
        self._known = known


def _read(content: Any) -> dict[str, Standing]:
    try:
        return _KEPT.validate_python(content or {})
    except ValidationError as error:
        # Written by another version; what is held against nodes is no reason not to start.
        _log.warning("what was held against nodes cannot be read and is forgotten: %s", error)
        return {}
