"""The process that writes a rank's checkpoints while the rank goes on training.

    python -m railweave.agents.checkpoint_writer SOCKET_FD

It imports neither torch nor Ray. The first message says what it works for. A save arrives as one
message with a memory file that holds the serialised state; what became of it goes back as
messages. The process of rank 0 also commits the steps whose ranks have all saved, and removes old
ones. It never raises what the storage refuses: that is an outcome, and what was complete before
stays complete.

When its rank is gone it finishes what it has. SIGTERM leaves it the shard it is writing.
"""

from __future__ import annotations

import json
import mmap
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Any

from .checkpoint import Checkpointer
from .checkpoint_commit import Commit
from .checkpoint_history import Check, CheckpointError, FencedAttempt
from .checkpoint_keep import Keep, prune
from .checkpoint_manifest import Kind
from .checkpoint_state import ChecksumWriter

MESSAGE_BYTES = 64 * 1024
_FIRST_POLL_S = 0.01
_SLOWEST_POLL_S = 0.5
_ORPHAN_S = 10.0
_NICENESS = 5
_BLOCK_BYTES = 4 << 20


class Writer:
    """One rank's writer: shards as they come, and on rank 0 commits in between.

    commits: steps of which this rank's shard is written, oldest first; only on rank 0.
    """

    def __init__(self, rank: socket.socket, settings: dict[str, Any]) -> None:
        self._rank = rank
        self._checkpointer = Checkpointer(
            settings["directory"], settings["rank"], settings["world_size"], settings["attempt"]
        )
        self._keep = Keep.parse(settings["keep"]) if settings["keep"] is not None else None
        self._commit_timeout_s = float(settings["commit_timeout_s"])
        self.commits: dict[int, tuple[Commit, float, float]] = {}
        self._poll_s = _FIRST_POLL_S
        self._orphan_since: float | None = None
        self._told_to_end = False
        self._wake, wake = socket.socketpair()
        self._wake.setblocking(False)
        wake.setblocking(False)
        self._wake_end = wake

    def run(self) -> None:
        """Until the rank is gone and everything it gave is written and, where possible, whole."""
        signal.set_wakeup_fd(self._wake_end.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._asked_to_end)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while not self._over():
            waiting = [self._wake] if self._orphan_since is not None else [self._rank, self._wake]
            pause_s = self._poll_s if self.commits or self._orphan_since is not None else None
            ready = select.select(waiting, [], [], pause_s)[0]
            if self._wake in ready:
                with suppress(BlockingIOError):
                    self._wake.recv(4096)
            if self._rank in ready:
                self._take()
            self._look_at_commits()

    def _over(self) -> bool:
        if self._told_to_end:
            return True
        if self._orphan_since is None:
            return False
        return not self.commits or time.monotonic() > self._orphan_since + _ORPHAN_S

    def _asked_to_end(self, *_: object) -> None:
        self._told_to_end = True

    def _take(self) -> None:
        try:
            message, handles, _, _ = socket.recv_fds(self._rank, MESSAGE_BYTES, 1)
        except OSError:
            message, handles = b"", []
        if not message:
            self._orphan_since = time.monotonic()
            return
        request = json.loads(message)
        (handle,) = handles
        try:
            self._save(int(request["step"]), Kind(request["kind"]), handle, int(request["size"]))
        finally:
            os.close(handle)

    def _save(self, step: int, kind: Kind, handle: int, size_bytes: int) -> None:
        began_s = time.monotonic()
        try:
            shard = self._checkpointer.write_shard(
                step, kind, lambda writer: _copied(handle, size_bytes, writer)
            )
        except CheckpointError as error:
            self._tell(step, "failed", began_s, why=str(error), fenced=_is_fence(error))
            return
        self._tell(step, "written", began_s, size_bytes=shard.size_bytes)
        if self._checkpointer.rank == 0:
            self.commits[step] = (self._checkpointer.begin_commit(step), began_s, time.monotonic())
            self._poll_s = _FIRST_POLL_S

    def _look_at_commits(self) -> None:
        for step, (commit, began_s, since_s) in sorted(self.commits.items(), reverse=True):
            if step not in self.commits:
                continue
            try:
                if commit.look():
                    del self.commits[step]
                    path = commit.write(Check.SIZES)
                    self._tell(step, "committed", began_s, path=path)
                    self._give_up_below(step)
                    self._prune(step)
                elif time.monotonic() > since_s + self._commit_timeout_s:
                    del self.commits[step]
                    why = f"after {self._commit_timeout_s:g} s {commit.late()}"
                    self._tell(step, "uncommitted", began_s, why=why)
                    self._checkpointer.discard(step)
            except (CheckpointError, OSError) as error:
                self.commits.pop(step, None)
                fenced = _is_fence(error)
                self._tell(step, "uncommitted", began_s, why=str(error), fenced=fenced)
        self._poll_s = min(2 * self._poll_s, _SLOWEST_POLL_S)

    def _give_up_below(self, step: int) -> None:
        """Ranks save in order: what an older step still lacks now does not come any more."""
        for older in [each for each in self.commits if each < step]:
            commit, began_s, _ = self.commits.pop(older)
            why = f"{commit.late()}; step {step} is complete since"
            self._tell(older, "uncommitted", began_s, why=why)

    def _prune(self, step: int) -> None:
        if self._keep is None:
            return
        began_s = time.monotonic()
        try:
            prune(self._checkpointer.directory, self._keep, check=Check.SIZES)
        except CheckpointError as error:
            self._tell(step, "unpruned", began_s, why=str(error))

    def _tell(self, step: int, what: str, began_s: float, **more: Any) -> None:
        took_s = time.monotonic() - began_s
        message = {"step": step, "what": what, "took_s": took_s, **more}
        data = json.dumps(message).encode()
        if len(data) > MESSAGE_BYTES:
            data = json.dumps({**message, "why": str(more.get("why"))[:2000]}).encode()
        with suppress(OSError):
            self._rank.send(data)


def _is_fence(error: Exception) -> bool:
    return isinstance(error, FencedAttempt)


def _copied(handle: int, size_bytes: int, writer: ChecksumWriter) -> None:
    if not size_bytes:
        return
    with mmap.mmap(handle, size_bytes, prot=mmap.PROT_READ) as state, memoryview(state) as view:
        for start in range(0, size_bytes, _BLOCK_BYTES):
            with view[start : start + _BLOCK_BYTES] as block:
                writer.write(block)


def main(arguments: list[str]) -> None:
    """Serve the rank at the other end of a socket until it is gone."""
    with socket.socket(fileno=int(arguments[0])) as rank:
        with suppress(OSError):
            os.nice(_NICENESS)
        settings = rank.recv(MESSAGE_BYTES)
        if settings:
            Writer(rank, json.loads(settings)).run()


if __name__ == "__main__":
    main(sys.argv[1:])
