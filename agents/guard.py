"""The guard: starts the ranks of one attempt on one node and lets none of them outlive it.

One process per attempt and node, detached from the agent that started it. It is the subreaper of
everything below it, so nothing that a rank starts can get away: when it has no child left, nothing
is left. It writes the attempt's journal and answers on a Unix socket. Standard library only.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from .belongings import Belongings
from .journal import FINAL_PHASES, Journal, Record, apply, empty
from .logs import last_lines, log_path
from .lookout import LOOK_S, NAN_LOSS_LIMIT, NAN_LOSS_VARIABLE, Lookout
from .processes import (
    be_favoured,
    become_subreaper,
    below,
    detach,
    own_children,
    process,
    send_signal,
    set_name,
    table,
)
from .rank_start import start_rank

MARKER = "RAILWEAVE_ATTEMPT_ID"
"""Environment variable of every rank; finds what is left of an attempt whose guard was killed."""
ON_REQUEST = "stopped on request"
"""The reason of a part that its controller had stopped."""
JOURNAL_NAME = "journal.jsonl"
SPEC_NAME = "launch.json"
KILL_WAIT_S = 5.0
"""How long after the first SIGKILL a stop waits for the kernel before it reports survivors."""
NOTE_S = 10.0
"""How often a guard notes what its ranks have that can outlive them."""
_SHELL_KILLED = 128 + signal.SIGKILL  # what a shell says of a command that was killed
_REQUEST_BYTES = 64 * 1024
_REQUEST_WAIT_S = 10.0
_JOURNAL_RETRY_S = 1.0


class Guard:
    """The ranks of one attempt on one node.

    status: what the journal says so far; changed by `_record` alone.
    pids: running ranks by pid; empty once every rank has exited.
    """

    def __init__(self, spec: dict[str, Any], folder: Path, journal: Journal, first: Record) -> None:
        launch = spec["launch"]
        self.launch = launch
        self.marker: str = spec["marker"]
        self.umask: int = spec["umask"]
        self.folder = folder
        self.journal = journal
        self.status = empty(launch["job_id"], launch["attempt"], launch["node"])
        apply(self.status, first)
        self.pids: dict[int, int] = {}
        self.ended: set[int] = set()
        self.reason = ""
        self.kill_at = float("inf")
        self.survivors: list[int] = []
        self._changed = asyncio.Event()
        self._wake = asyncio.Event()
        self._unsaved = False
        limit = launch["env"].get(NAN_LOSS_VARIABLE) or NAN_LOSS_LIMIT
        self._lookout = Lookout(folder, int(limit))
        self._look_at = 0.0
        self._belongings = Belongings.before()
        self._note_at = time.monotonic() + LOOK_S

    async def run(self) -> None:
        """From the first rank to the last process."""
        if not self.reason:
            self._start_ranks()
        while self.pids and not self.reason:
            await self._woken(min(_JOURNAL_RETRY_S, LOOK_S) if self._unsaved else LOOK_S)
            self._look()
        by_themselves = bool(self.status["ranks"]) and not self.pids
        if self.kill_at == float("inf"):
            self.kill_at = time.monotonic() + self.launch["grace_s"]
        self._note_belongings()
        await self._clear()
        freed, kept = self._belongings.remove()
        left = {"freed": freed, "kept": kept} if freed or kept else {}
        if by_themselves:
            self._record({"phase": "ended", **left})
        else:
            self._record({"phase": "stopped", "reason": self.reason, **left})
        while self._unsaved:
            await asyncio.sleep(_JOURNAL_RETRY_S)
            self._save()

    def request_stop(self, grace_s: float, reason: str) -> None:
        """End everything. A later request can shorten an earlier one's grace, not stretch it."""
        self.reason = self.reason or reason
        self.kill_at = min(self.kill_at, time.monotonic() + grace_s)
        self._wake.set()

    def reap(self) -> bool:
        """Collect what has exited. False when no child is left, so nothing at all is left."""
        changes = []
        findings = []
        children = True
        while True:
            try:
                pid, wait_status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                children = False
                break
            if pid == 0:
                break
            rank = self.pids.pop(pid, None)
            if rank is not None:
                code = os.waitstatus_to_exitcode(wait_status)
                changes.append(self._exit(rank, code))
                if code in (-signal.SIGKILL, _SHELL_KILLED) and not self.reason:
                    findings += self._lookout.out_of_memory(rank)
        if changes:
            self._record({"changes": changes, **({"findings": findings} if findings else {})})
        self._wake.set()
        return children

    def _look(self) -> None:
        """See how the running ranks are, once every LOOK_S."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_S * 0.9
            self._lookout.look(self.pids, now)
            if found := self._lookout.findings(now):
                self._record({"findings": found})
        if now >= self._note_at:
            self._note_belongings()

    def _note_belongings(self) -> None:
        """Note what all processes below have that can outlive them."""
        self._note_at = time.monotonic() + NOTE_S
        if self._belongings.look(below([os.getpid()], table())):
            # A full disk keeps nobody from being stopped.
            with contextlib.suppress(OSError):
                self._belongings.save(self.folder)

    def _exit(self, rank: int, code: int) -> Record:
        change: Record = {"rank": rank, "exited_s": time.time()}
        change["signal" if code < 0 else "exit_code"] = abs(code)
        if self.reason:
            change["stopping"] = True
        if code != 0:
            change["last_lines"] = last_lines(log_path(self.folder, rank))
        return change

    async def _woken(self, timeout_s: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), timeout_s)
        self._wake.clear()
        if self._unsaved:
            self._save()

    async def _clear(self) -> None:
        """SIGTERM to everything below, SIGKILL once the grace is over, until nothing is left."""
        asked: set[tuple[int, int]] = set()
        while self.reap():
            now = time.monotonic()
            if now >= self.kill_at:
                # What a killed process leaves behind becomes our child, so the children are enough.
                for pid in own_children():
                    self.ended.add(pid)
                    with contextlib.suppress(PermissionError):
                        os.kill(pid, signal.SIGKILL)
                if now >= self.kill_at + KILL_WAIT_S:
                    self.survivors = [entry.pid for entry in below([os.getpid()], table())]
                    self._announce()
            else:
                for entry in below([os.getpid()], table()):
                    if (entry.pid, entry.start_ticks) not in asked and entry.state != "Z":
                        asked.add((entry.pid, entry.start_ticks))
                        self.ended.add(entry.pid)
                        send_signal(entry, signal.SIGTERM)
                        if entry.state == "T":
                            send_signal(entry, signal.SIGCONT)
            self._wake.clear()
            await self._woken(self._pause_s(now))

    def _pause_s(self, now: float) -> float:
        if now < self.kill_at:
            return min(0.05, self.kill_at - now)
        return 0.001 if now < self.kill_at + 0.1 else 0.1

    def _record(self, record: Record) -> None:
        record["seq"] = self.status["seq"] + 1
        apply(self.status, record)
        self.journal.append(record)
        self._save()
        self._announce()

    def _announce(self) -> None:
        """Wake everyone who waits for a change."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _save(self) -> None:
        try:
            self.journal.flush()
        except OSError as error:
            if not self._unsaved:
                _say(f"journal not written, trying again: {error}")
            self._unsaved = True
        else:
            self._unsaved = False

    def _start_ranks(self) -> None:
        self._record({"ranks": [{"rank": rank["rank"]} for rank in self.launch["ranks"]]})
        changes = [self._start(rank) for rank in self.launch["ranks"]]
        self._record({"phase": "running", "changes": changes})

    def _start(self, rank: dict[str, Any]) -> Record:
        environment = {MARKER: self.marker}
        pid, change = start_rank(self.launch, rank, environment, self.umask, self.folder)
        if pid is not None:
            self.pids[pid] = rank["rank"]
        return change

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request of one client: a JSON line in, a JSON line out."""
        try:
            peer = writer.get_extra_info("socket").getsockopt(
                socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
            )
            if struct.unpack("3i", peer)[1] != os.geteuid():
                return
            line = await asyncio.wait_for(reader.readline(), _REQUEST_WAIT_S)
            if not line:
                return  # only wanted to know whether anyone is there
            answer = await self._answer(json.loads(line))
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        except (TimeoutError, OSError, ValueError, TypeError, KeyError) as error:
            _say(f"request dropped: {error!r}")
        finally:
            writer.close()

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        command = request["command"]
        if command == "wait":
            await self._passed(int(request["after_seq"]), float(request["wait_s"]))
            return self.status
        if command == "vitals":
            return {"vitals": self._lookout.vitals(time.monotonic())}
        if command == "stop":
            return await self._stopped(float(request["grace_s"]))
        if command == "status":
            return self.status
        raise ValueError(f"unknown command {command!r}")

    async def _passed(self, seq: int, wait_s: float) -> None:
        deadline = time.monotonic() + wait_s
        while self.status["seq"] <= seq and self.status["phase"] not in FINAL_PHASES:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left_s)

    async def _stopped(self, grace_s: float) -> dict[str, Any]:
        began = time.monotonic()
        self.request_stop(grace_s, ON_REQUEST)
        self.survivors = []
        while not self.survivors and self.status["phase"] not in FINAL_PHASES:
            await self._changed.wait()
        return {
            "killed": len(self.ended),
            "survivors": self.survivors,
            "took_s": time.monotonic() - began,
        }


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


async def _guard(spec: dict[str, Any], folder: Path, raylet_fd: int, ready: int) -> None:
    first: Record = {"seq": 1, "phase": "starting", "guard": _identity(), "marker": spec["marker"]}
    journal = Journal.create(folder / JOURNAL_NAME, first)
    guard = Guard(spec, folder, journal, first)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGCHLD, guard.reap)
    loop.add_signal_handler(signal.SIGHUP, lambda: None)
    for number in (signal.SIGTERM, signal.SIGINT):
        reason = f"its guard was sent {number.name}"
        loop.add_signal_handler(number, guard.request_stop, spec["launch"]["grace_s"], reason)

    def raylet_died() -> None:
        loop.remove_reader(raylet_fd)
        guard.request_stop(spec["launch"]["grace_s"], "the node's raylet died")

    loop.add_reader(raylet_fd, raylet_died)
    if select.select([raylet_fd], [], [], 0)[0]:
        raylet_died()
    path = spec["socket"]
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    try:
        server = await asyncio.start_unix_server(guard.serve, path, limit=_REQUEST_BYTES)
        os.chmod(path, 0o600)
        os.write(ready, b"1")
        os.close(ready)
        await guard.run()
        server.close()
        await _answered(loop)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


async def _answered(loop: asyncio.AbstractEventLoop) -> None:
    """Let clients that wait for the end have their answers."""
    others = asyncio.all_tasks(loop) - {asyncio.current_task(loop)}
    if others:
        await asyncio.wait(others, timeout=2.0)


def _identity() -> dict[str, int]:
    own = process(os.getpid())
    return {"pid": os.getpid(), "start_ticks": own.start_ticks if own else 0}


def main(arguments: list[str]) -> None:
    """Detach, guard one attempt, exit. Arguments: the attempt's folder and the raylet's pidfd.

    The process that was started exits 0 once the guard answers and 1 when it could not come up.
    """
    folder, raylet_fd = Path(arguments[0]), int(arguments[1])
    spec = json.loads((folder / SPEC_NAME).read_text())
    ready = detach()
    fcntl.fcntl(raylet_fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    become_subreaper()
    set_name("railweave-guard")
    be_favoured()
    try:
        asyncio.run(_guard(spec, folder, raylet_fd, ready))
    except FileExistsError:
        os._exit(1)
    except BaseException:
        traceback.print_exc()
        _kill_children()
        os._exit(1)


def _kill_children() -> None:
    while True:
        for pid in own_children():
            with contextlib.suppress(PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return
