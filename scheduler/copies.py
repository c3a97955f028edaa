"""Jobs whose checkpoints lie on their nodes: who may use which copy server, who copies where."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ray.exceptions import RayError

from ..agents.agent import node_folder
from ..agents.checkpoint_nodes import PEERS_VARIABLE, Peers
from ..agents.copy_host import key_path
from .core import Core
from .link import reason, within
from .neighbours import neighbours
from .nodes import Nodes
from .watch import NodeGone

_ANSWER_S = 30.0
_READ_S = 3600.0
_KEY_NAME = "copies.key"
_EVENT = "copies"
_MOST_EVENTS = 100_000
_log = logging.getLogger(__name__)


class Copies:
    """The copy servers of all jobs that use them. What it must remember is in the history."""

    def __init__(self, core: Core, nodes: Nodes) -> None:
        self._core = core
        self._nodes = nodes
        self._background: set[asyncio.Task[None]] = set()
        core.on_final.append(self._revoke_later)

    async def arrange(
        self, job_id: str, attempt: int, place: str, devices: Sequence[tuple[str, int]]
    ) -> dict[str, Peers]:
        """What each node of an attempt, in the order of its ranks, is told of the others.

        Raises NodeGone, RayError, TimeoutError when one of these nodes has no copy server.
        """
        own = list(dict.fromkeys(node for node, _ in devices))
        cluster = self._nodes.topology.cluster
        if cluster is None:
            raise NodeGone("no node of the cluster is known yet")
        present = [node.name for node in cluster.nodes if self._nodes.has_agent(node.name)]
        copy_to = neighbours(own, cluster, present)
        needed = list(dict.fromkeys([*own, *copy_to.values()]))
        key = self.key(job_id)
        addresses = dict(
            zip(
                needed,
                await asyncio.gather(*(self._grant(node, job_id, key, place) for node in needed)),
                strict=True,
            )
        )
        before = await self._reachable(job_id, key, place, but=needed)
        pairs = ", ".join(f"{node} on {other}" for node, other in copy_to.items()) or "none"
        message = f"second copies of shards: {pairs}"
        data = {"nodes": needed, "copy_to": copy_to}
        self._core.note(_EVENT, message, job_id=job_id, attempt=attempt, data=data)
        readers = (*addresses.values(), *before.values())
        return {
            node: Peers(
                job_id=job_id,
                key_file=os.fspath(
                    key_path(node_folder(self._core.settings.state_dir, node), job_id)
                ),
                own=addresses[node],
                home=addresses[own[0]],
                copy_to=addresses[copy_to[node]] if node in copy_to else "",
                writers=tuple(addresses[each] for each in own),
                readers=readers,
            )
            for node in own
        }

    async def readers(self, job_id: str, place: str) -> Peers:
        """For someone who only reads: every node that may hold something and can be reached."""
        found = await self._reachable(job_id, self.key(job_id), place, but=())
        if self._core.store.job(job_id).state.final:
            asyncio.get_running_loop().call_later(_READ_S, self._revoke_later, job_id)
        return Peers(job_id=job_id, key_file="", readers=tuple(found.values()))

    def key(self, job_id: str) -> str:
        """A job's key, the same for all of its attempts."""
        path = Path(self._core.settings.state_dir) / _KEY_NAME
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            pass
        else:
            with os.fdopen(handle, "w") as stream:
                stream.write(secrets.token_hex(32))
        return hmac.new(path.read_bytes(), job_id.encode(), hashlib.sha256).hexdigest()

    async def _reachable(
        self, job_id: str, key: str, place: str, but: Sequence[str]
    ) -> dict[str, str]:
        """The servers of nodes that earlier attempts used, as far as they answer."""
        earlier = [node for node in self._used(job_id) if node not in but]
        earlier = [node for node in earlier if self._nodes.has_agent(node)]
        calls = (self._grant(node, job_id, key, place) for node in earlier)
        found: dict[str, str] = {}
        for node, answer in zip(
            earlier, await asyncio.gather(*calls, return_exceptions=True), strict=True
        ):
            if isinstance(answer, str):
                found[node] = answer
            else:
                _log.warning("no copies from %s: %s", node, answer)
        return found

    async def _grant(self, node: str, job_id: str, key: str, place: str) -> str:
        actor: Any = self._nodes.actor(node)
        return str(await within(actor.grant_copies.remote(job_id, key, place), _ANSWER_S))

    def _used(self, job_id: str) -> list[str]:
        """Nodes that any attempt has put something on, as the history tells."""
        events = self._core.store.events(job_id, 0, _MOST_EVENTS)
        return list(
            dict.fromkeys(
                node for event in events if event.kind == _EVENT for node in event.data["nodes"]
            )
        )

    def _revoke_later(self, job_id: str) -> None:
        task = asyncio.create_task(self._revoke(job_id))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _revoke(self, job_id: str) -> None:
        for node in self._used(job_id):
            try:
                actor: Any = self._nodes.actor(node)
                await within(actor.revoke_copies.remote(job_id), _ANSWER_S)
            except (NodeGone, RayError, TimeoutError) as error:
                _log.warning("copies of %s stay on %s: %s", job_id, node, reason(error))


def peers_environment(peers: Peers) -> dict[str, str]:
    """What a node's ranks are told."""
    return {PEERS_VARIABLE: peers.to_text()}
