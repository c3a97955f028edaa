"""The agent of a node: what the scheduler can ask of it. Knows nothing of Ray; fleet.py does.

Blocking work runs in threads, so that a sign of life never waits for a disk or a long poll.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from . import checkpoint
from .attempt import Heartbeat, LogChunk, NodeLaunch, NodeStatus, Refused, StopReport
from .checkpoint_history import Place
from .checkpoint_nodes import node_directory, storage_of
from .copy_host import CopyHost
from .device_health import DeviceWatch
from .inventory import NodeInventory, take_inventory
from .lifeline import LifelineEnd, reaches
from .netprobe import Opening
from .notes import Note
from .port_book import PortBook
from .preflight import NodeCheck, check_node
from .probe_end import NicAddress, PairProbe, ProbeEnd, ProbeOrder
from .runner import Runner
from .troubles import ClockWatch, DiskWatch, Troubles, steady_s

_TEND_S = 1.0
_PRUNE_EVERY_S = 3600.0
_KEEP_S = 7 * 24 * 3600.0
_LONG_POLLS = 256
_WORKERS = 32
Result = TypeVar("Result")
_log = logging.getLogger(__name__)


def node_folder(state_dir: str | Path, node: str) -> Path:
    """A node's own folder, so that nodes may share a disk."""
    quoted = quote(node, safe="")
    # quote() leaves dots alone, and "." and ".." lead elsewhere.
    return Path(state_dir) / "nodes" / (f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted)


class Agent:
    """One node's inventory, probes, ranks, logs and signs of life.

    state_dir: the same on every node; each uses a folder of its own in it.
    raylet_pid: the process whose death ends every rank here.
    resources, labels: Ray's, as this node was started with.
    nics: where probes of each rail go; by default all to `address`.
    nvml: pynvml's functions; the library itself by default.
    """

    def __init__(
        self,
        node: str,
        node_id: str,
        address: str,
        state_dir: str,
        raylet_pid: int,
        resources: Mapping[str, float],
        labels: Mapping[str, str],
        nics: Sequence[NicAddress] = (),
        nvml: Any = None,
    ) -> None:
        self.node = node
        self.node_id = node_id
        self.address = address
        self._resources = dict(resources)
        self._labels = dict(labels)
        self._end = ProbeEnd(nics or [NicAddress(address=address)])
        folder = node_folder(state_dir, node)
        self._folder = folder
        self._nvml = nvml
        self._runner = Runner(folder, node, raylet_pid, nvml)
        self._raylet_fd = os.pidfd_open(raylet_pid)
        self._copies = CopyHost(folder, address, self._raylet_fd)
        self._line = LifelineEnd(address)
        self._pollers = ThreadPoolExecutor(_LONG_POLLS, "poll")
        self._workers = ThreadPoolExecutor(_WORKERS, "work")
        self._noted: tuple[tuple[str, int, int], ...] = ()
        self._ports = PortBook(folder / "ports")
        self._troubles = Troubles()
        self._clock = ClockWatch(time.time(), steady_s())
        self._disk = DiskWatch(folder)
        self._devices = DeviceWatch(nvml)
        self._closed = threading.Event()
        self._tender = threading.Thread(target=self._tend, name="tend", daemon=True)
        self._tender.start()

    def close(self) -> None:
        """Let go of threads and handles; guards and ranks go on."""
        self._closed.set()
        self._tender.join()
        self._line.close()
        self._devices.close()
        self._pollers.shutdown(cancel_futures=True)
        self._workers.shutdown(cancel_futures=True)
        self._runner.close()
        os.close(self._raylet_fd)

    async def ping(self) -> Heartbeat:
        """A sign of life, at once."""
        return Heartbeat(
            node=self.node,
            node_id=self.node_id,
            now_s=time.time(),
            attempts=self._runner.held(),
            notes=self._noted,
            pid=os.getpid(),
            line_port=self._line.port,
            troubles=self._troubles.told(),
        )

    async def inventory(self) -> NodeInventory:
        """What this node has."""
        return await self._work(
            lambda: take_inventory(self.node, self.address, self._resources, self._labels)
        )

    async def probe_listen(self, order: ProbeOrder) -> Opening:
        """Expect one probe; what the other agent needs for it. Raises ProbeFailed."""
        return await self._work(lambda: self._end.listen(order))

    async def probe_connect(self, opening: Opening, order: ProbeOrder) -> PairProbe:
        """Probe the paths to an agent that expects it. Raises ProbeFailed."""
        return await self._work(lambda: self._end.connect(opening, order))

    async def preflight(self, devices: Sequence[int], limit_s: float) -> NodeCheck:
        """Check this node for ranks on those devices; takes `limit_s` at most."""
        return await self._work(
            lambda: check_node(self.node, self._folder, devices, limit_s, self._nvml)
        )

    async def reaches(self, address: str, port: int, timeout_s: float) -> bool:
        """Whether the machine at an address answers this one at all."""
        return await self._work(lambda: reaches(address, port, timeout_s))

    async def free_port(self) -> dict[str, Any]:
        """This node's address and a TCP port that is free on it, as {"host", "port"}.

        No port is given that was given to one of the last thousands of attempts.
        """
        port = await self._work(lambda: self._ports.free_port(self.address))
        return {"host": self.address, "port": port}

    async def launch(self, launch: NodeLaunch | Mapping[str, Any]) -> NodeStatus:
        """Start this node's part of an attempt. Raises Refused; see Runner.launch."""
        asked = NodeLaunch.model_validate(launch)
        return await self._work(lambda: self._runner.launch(asked))

    async def status(
        self, job_id: str, attempt: int, after_seq: int = -1, wait_s: float = 0.0
    ) -> NodeStatus:
        """The attempt's state, as soon as it is past `after_seq`, after `wait_s` at the latest."""
        loop = asyncio.get_running_loop()
        call = (job_id, attempt, after_seq, wait_s)
        return await loop.run_in_executor(self._pollers, self._runner.status, *call)

    async def stop(self, job_id: str, attempt: int, grace_s: float) -> StopReport:
        """End every process of the attempt here, and see that it is gone."""
        loop = asyncio.get_running_loop()
        call = (job_id, attempt, grace_s)
        return await loop.run_in_executor(self._pollers, self._runner.stop, *call)

    async def attempts(self) -> tuple[NodeStatus, ...]:
        """Every attempt that has left something here, ended ones included."""
        return await self._work(lambda: tuple(self._runner.attempts()))

    async def read_notes(self, job_id: str, attempt: int, after: int) -> list[Note]:
        """What the ranks of an attempt have noted here, behind the first `after` lines."""
        return await self._work(lambda: self._runner.read_notes(job_id, attempt, after))

    async def read_log(
        self, job_id: str, attempt: int, rank: int, offset: int = 0, limit: int = 65536
    ) -> LogChunk:
        """A part of a rank's log; a negative offset counts from its end. Raises Refused."""
        call = (job_id, attempt, rank, offset, limit)
        return await self._work(lambda: self._runner.read_log(*call))

    async def grant_copies(self, job_id: str, key: str, place: str) -> str:
        """Let a job use this node's copy server; returns its `host:port`. Raises Refused.

        place: the `node://` URL of the job's checkpoints, of which this node's folder is used.
        """
        directory = node_directory(place, self.node)
        return await self._work(lambda: self._copies.grant(job_id, key, directory))

    async def revoke_copies(self, job_id: str) -> None:
        """The job is over: nothing of it stays in this node's memory."""
        await self._work(lambda: self._copies.revoke(job_id))

    async def break_something(self, act: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Break something here on purpose, one of `breaking.ACTS`. Raises Refused."""
        from . import breaking  # only who tests a cluster needs it

        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pollers, breaking.act, act, arguments)

    async def latest_checkpoint(
        self,
        directory: str,
        attempt: int | None = None,
        world_size: int | None = None,
        peers: str = "",
    ) -> dict[str, Any]:
        """The newest complete checkpoint as this node sees it, and why newer ones were passed over.

        With `attempt`, attempts below it are fenced out of the directory first. Returns {"step",
        "path", "passed_over": [(path, reason)]}; step and path are None where there is none.
        peers: of this node, where the checkpoints lie on the nodes.
        """
        place: Place = directory
        if peers:
            place = storage_of(directory, self.node, peers)
        return await self._work(lambda: _latest_checkpoint(place, attempt, world_size))

    async def _work(self, function: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._workers, function)

    def _look_for_troubles(self) -> None:
        wall_s = time.time()
        jumped = self._clock.look(wall_s, steady_s())
        full = self._disk.look(wall_s)
        self._troubles.add(*(found for found in (jumped, full) if found is not None))
        self._troubles.add(*self._devices.look(time.monotonic()))

    def _tend(self) -> None:
        prune_at = time.monotonic()
        while not self._closed.wait(_TEND_S):
            self._look_for_troubles()
            try:
                self._noted = self._runner.noted()
                self._runner.tend()
                self._copies.tend()
                if time.monotonic() >= prune_at:
                    self._runner.prune(_KEEP_S, time.time())
                    prune_at = time.monotonic() + _PRUNE_EVERY_S
            except (OSError, Refused):
                _log.exception("node %s could not look after its attempts", self.node)


def _latest_checkpoint(
    directory: Place, attempt: int | None, world_size: int | None
) -> dict[str, Any]:
    if attempt is not None:
        checkpoint.fence(directory, attempt)
    found = checkpoint.latest(directory, world_size=world_size)
    passed_over = [(path, reason) for path, reason in found.passed_over]
    return {"step": found.step, "path": found.path, "passed_over": passed_over}
