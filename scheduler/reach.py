"""What the head reaches: a line to every node, and what it means when one breaks or is silent."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ray.exceptions import RayError

from ..agents.fleet import NodeAgent
from ..agents.heartbeat import HeartbeatBook
from ..agents.lifeline import Break, Lifelines
from .core import Core
from .fault import FaultKind
from .link import node_hangs, off_loop, within
from .silence import MOST_WITNESSES, Meaning, Silence, meaning

_WITNESS_S = 0.5
_ASK_S = 1.0
_log = logging.getLogger(__name__)


class Reach:
    """The lines to the nodes and their signs of life; used on the daemon's event loop only.

    lost: called with a node, why, and the kind of fault, as soon as it counts as lost. ended:
    called when an agent's process has ended, which may be the first that is seen of a node's end.
    """

    def __init__(
        self,
        core: Core,
        agents: Mapping[str, NodeAgent],
        lost: Callable[[str, str, FaultKind], None],
        ended: Callable[[], Awaitable[None]],
    ) -> None:
        self._core = core
        self._agents = agents
        self._lost = lost
        self._ended = ended
        missed = max(1, round(core.settings.silent_s / core.settings.heartbeat_s))
        self._book = HeartbeatBook(core.settings.heartbeat_s, missed)
        self._lines: Lifelines | None = None
        self._making: set[str] = set()
        self._calling: set[str] = set()
        # Nodes whose line broke without a word, and which peers reached them or did not.
        self._out: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Hang up on every node."""
        if self._lines is not None:
            self._lines.close()

    def heard(self, node: str, line_port: int = 0) -> None:
        """A sign of life of a node's agent, which listens for a line on a port (0: on none)."""
        self._book.observe(node, time.monotonic())
        if self._out.pop(node, None) is not None:
            self._core.note("reached", f"{node} can be reached again", data={"node": node})
        agent = self._agents.get(node)
        has = self._lines.port(node) if self._lines else None
        if agent is not None and line_port and has != line_port and node not in self._making:
            self._making.add(node)
            self._background(self._make_line(node, agent.address, line_port))

    def forget(self, node: str) -> None:
        """Stop watching a node."""
        self._book.forget(node)
        self._out.pop(node, None)
        if self._lines is not None:
            self._lines.drop(node)

    def silence_s(self, node: str) -> float | None:
        """How long a node has shown no sign of life; None for one that is not watched."""
        self._take_echoes(node)
        return self._book.silence_s(node, time.monotonic())

    def look(self) -> None:
        """Tell which nodes have been silent for too long."""
        for node in self._agents:
            self._take_echoes(node)
        for node in self._book.lost(time.monotonic()):
            has_line = self._lines is not None and self._lines.port(node) is not None
            if has_line or node in self._out:
                self._tell(node, self._meaning(node))
            elif node not in self._calling:
                self._calling.add(node)
                self._background(self._call(node))

    def _take_echoes(self, node: str) -> None:
        echoed_at = self._lines.heard_at(node) if self._lines else None
        if echoed_at is not None and self._book.silence_s(node, echoed_at) is not None:
            self._book.observe(node, echoed_at)

    async def _call(self, node: str) -> None:
        """Tell what the silence of a node without a line means, by whether its kernel answers."""
        try:
            agent = self._agents.get(node)
            takes_calls = agent is not None and await node_hangs(agent.node_id)
            if node in self._agents and node in self._book.lost(time.monotonic()):
                self._tell(node, self._meaning(node, takes_calls))
        finally:
            self._calling.discard(node)

    def _meaning(self, node: str, takes_calls: bool = False) -> Meaning:
        reached_by, not_reached_by = self._out.get(node, ((), ()))
        holds = None
        if node in self._out:
            holds = False
        elif self._lines is not None and self._lines.port(node) is not None:
            holds = True
        return meaning(
            Silence(
                silent_s=self._book.silence_s(node, time.monotonic()) or 0.0,
                limit_s=self._core.settings.silent_s,
                line_holds=holds,
                takes_calls=takes_calls,
                reached_by=reached_by,
                not_reached_by=not_reached_by,
                out=len(self._out),
                watched=len(self._agents),
            )
        )

    def _tell(self, node: str, found: Meaning) -> None:
        if found.kind is not None:
            self._lost(node, found.why, found.kind)

    async def _make_line(self, node: str, address: str, port: int) -> None:
        try:
            if self._lines is None:
                loop = asyncio.get_running_loop()

                def broke(*told: Any) -> None:
                    loop.call_soon_threadsafe(self._broke, *told)

                self._lines = Lifelines(broke)
            await off_loop(self._lines.watch, node, address, port)
            if node not in self._agents:
                self._lines.drop(node)
        finally:
            self._making.discard(node)

    def _broke(self, node: str, how: Break, port: int) -> None:
        if node not in self._agents:
            return
        if how is Break.ENDED:
            self._background(self._ended())
            return
        self._out[node] = ((), ())
        self._background(self._investigate(node, port))

    async def _investigate(self, node: str, port: int) -> None:
        """Ask other nodes whether they reach one that the head does not."""
        address = self._agents[node].address
        witnesses = [name for name in self._agents if name not in self._out][:MOST_WITNESSES]
        answers = await asyncio.gather(*(self._asked(name, address, port) for name in witnesses))
        if node not in self._out or node not in self._agents:
            return  # it was heard of, or told lost, meanwhile
        told = dict(zip(witnesses, answers, strict=True))
        self._out[node] = (
            tuple(name for name, answer in told.items() if answer is True),
            tuple(name for name, answer in told.items() if answer is False),
        )
        found = self._meaning(node)
        data = {"node": node, "reached_by": self._out[node][0], "not_by": self._out[node][1]}
        self._core.note("out_of_reach", f"{node}: {found.why}", data=data)
        self._tell(node, found)

    async def _asked(self, witness: str, address: str, port: int) -> bool | None:
        """Whether another node reaches an address; None where that does not answer."""
        actor: Any = self._agents[witness].actor
        try:
            return bool(await within(actor.reaches.remote(address, port, _WITNESS_S), _ASK_S))
        except (RayError, TimeoutError) as error:
            _log.info("%s was not asked about %s: %s", witness, address, type(error).__name__)
            return None

    def _background(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(_logged(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _logged(work: Awaitable[None]) -> None:
    try:
        await work
    except Exception:
        _log.exception("looking after the lines failed")
