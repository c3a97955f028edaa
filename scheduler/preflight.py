"""The check of a placement's nodes before its ranks start: the bad one is found and set aside."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ray.exceptions import RayError

from ..agents.netprobe import Budget, Opening, ProbeFailed
from ..agents.preflight import NodeCheck
from ..agents.probe_end import ProbeOrder
from ..placement.names import some
from .core import Core
from .link import reason, within
from .nodes import Nodes
from .quarantine import Why
from .records import Device
from .suspects import Pair, blamed, rounds_of_neighbours, undecided, witness_pairs

# Enough to see that bytes arrive both ways; how fast links are is measured elsewhere.
_TRANSFER = ProbeOrder(
    budget=Budget(transfer_bytes=2**18, transfer_s=0.2, pings=2, ping_gap_s=0.0, connect_s=3.0)
)
_MARGIN_S = 5.0
_log = logging.getLogger(__name__)


class NotFit(Exception):
    """Nodes of the placement failed their check.

    set_aside: whether all of them are kept out of placements now, so that the next is without them.
    """

    def __init__(self, why: str, set_aside: bool) -> None:
        super().__init__(why)
        self.set_aside = set_aside


class Preflight:
    """Checks the nodes of a placement, all at once, within a bounded time."""

    def __init__(self, core: Core, nodes: Nodes) -> None:
        self._core = core
        self._nodes = nodes

    async def check(self, job_id: str, attempt: int, devices: Iterable[Device]) -> None:
        """See that all nodes of a placement are well. Raises NotFit, NodeGone."""
        began = time.monotonic()
        devices_of: dict[str, list[int]] = {}
        for node, device in devices:
            devices_of.setdefault(node, []).append(device)
        names = list(devices_of)
        checks, results = await asyncio.gather(
            asyncio.gather(*(self._node(node, devices_of[node]) for node in names)),
            self._transfers(names),
        )
        wrong = {check.node: check.wrong for check in checks if check.wrong}
        for node in blamed(results, names):
            failed = [other for pair, ok in results.items() if not ok for other in pair]
            peers = sorted({other for other in failed if other != node})
            wrong.setdefault(node, f"no transfer with {some(peers)} came through")
        took_s = time.monotonic() - began
        data = {
            "took_s": round(took_s, 3),
            "wrong": wrong,
            "nodes": {check.node: _numbers(check) for check in checks},
            "pairs": [[*pair, ok] for pair, ok in sorted(results.items())],
        }
        if not wrong:
            text = f"{len(names)} nodes and {len(results)} transfers between them are well"
            self._core.note("preflight", text, job_id=job_id, attempt=attempt, data=data)
            return
        text = "; ".join(f"{node} is not fit: {why}" for node, why in sorted(wrong.items()))
        self._core.note("preflight", text, job_id=job_id, attempt=attempt, data=data)
        for node, why in wrong.items():
            self._nodes.fault(node, Why.FAULT, f"failed its check before a start: {why}", job_id)
        out = self._core.store.quarantined().keys()
        raise NotFit(text, set_aside=wrong.keys() <= out)

    async def _node(self, node: str, devices: Sequence[int]) -> NodeCheck:
        limit_s = self._core.settings.preflight_s
        try:
            call = self._nodes.actor(node).preflight.remote(devices, limit_s)
            found: NodeCheck = await within(call, limit_s + _MARGIN_S)
        except TimeoutError:
            return NodeCheck(node=node, wrong=f"no answer within {limit_s + _MARGIN_S:g} s")
        except RayError as error:
            return NodeCheck(node=node, wrong=f"its agent fails: {reason(error)}")
        return found

    async def _transfers(self, names: Sequence[str]) -> dict[Pair, bool]:
        """Which pairs of neighbours could send each other something; and who tells of the rest."""
        results: dict[Pair, bool] = {}
        for pairs in rounds_of_neighbours(names):
            results |= await self._round(pairs)
        if open_nodes := undecided(results):
            others = [name for name in self._nodes.reachable() if name not in names]
            well = [name for pair, ok in results.items() if ok for name in pair]
            results |= await self._round(witness_pairs(open_nodes, [*others, *well]))
        return results

    async def _round(self, pairs: Sequence[Pair]) -> Mapping[Pair, bool]:
        done = await asyncio.gather(*(self._transfer(pair) for pair in pairs))
        return dict(zip(pairs, done, strict=True))

    async def _transfer(self, pair: Pair) -> bool:
        one, other = (self._nodes.actor(node) for node in pair)
        limit_s = min(_TRANSFER.deadline_s, self._core.settings.preflight_s) + _MARGIN_S
        try:
            opening: Opening = await within(other.probe_listen.remote(_TRANSFER), limit_s)
            await within(one.probe_connect.remote(opening, _TRANSFER), limit_s)
        except (RayError, TimeoutError, ProbeFailed, OSError) as error:
            _log.warning("no transfer between %s and %s: %s", *pair, reason(error))
            return False
        return True


def _numbers(check: NodeCheck) -> dict[str, Any]:
    return {
        name: round(value, 4)
        for name in ("compute_s", "disk_s", "device_s")
        if (value := getattr(check, name)) is not None
    }
