"""Saving while training goes on: the state is copied to host memory, another process writes it.

    from railweave.agents.checkpoint_background import BackgroundSaves

    saves = BackgroundSaves(Checkpointer(), keep=Keep(last=3))
    for step in ...:
        if saves.should_save(step):
            saves.save(step, {"model": model.state_dict(), "step": step})   # every rank
        for outcome in saves.outcomes():
            print(outcome)
    saves.finish()

The rank stands still for the copy alone. Serialising writes straight into a memory file (torch's
own checksum is left out: the shard's SHA-256 covers it), whose handle goes to the rank's writer
process; that never holds this process's interpreter lock. A save that comes while the writer is
still at the one before waits for it, so that there is never more than one copy of the state.

Nothing that the storage does ends training: a step that could not be saved is an outcome and a
warning. FencedAttempt alone is raised, by the next save, since nothing this rank does counts any
more.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from .checkpoint import Checkpointer
from .checkpoint_history import CheckpointError, FencedAttempt, whole_number
from .checkpoint_keep import Keep
from .checkpoint_manifest import Kind
from .checkpoint_memory import Memory
from .checkpoint_pace import MTBF_VARIABLE, Pace
from .checkpoint_state import kind_of, without_crc32, write_state
from .checkpoint_storage import Writer, is_url
from .checkpoint_writer import MESSAGE_BYTES
from .notes import note

_END_S = 5.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stall:
    """How long a save kept training waiting, in seconds.

    waited_s: for the writer to be done with the save before. copied_s: for the copy.
    """

    step: int
    waited_s: float
    copied_s: float
    size_bytes: int

    @property
    def total_s(self) -> float:
        """All of it."""
        return self.waited_s + self.copied_s


@dataclass(frozen=True)
class Outcome:
    """What became of a save: `path` where it is a checkpoint now, `why` where something failed.

    Rank 0 learns of each checkpoint, the others that their shard is written. took_s: since the
    writer began. As text it is the line that Railweave reads in a job's log.
    """

    step: int
    took_s: float
    path: str = ""
    why: str = ""

    @property
    def failed(self) -> bool:
        """Whether it needs someone's attention."""
        return bool(self.why)

    def __str__(self) -> str:
        if self.why:
            return f"not saved step={self.step} write_s={self.took_s:.3f} why={self.why}"
        where = f"saved step={self.step} path={self.path}" if self.path else f"wrote={self.step}"
        return f"{where} write_s={self.took_s:.3f}"


class BackgroundSaves:
    """One rank's saves in the background, and when the next one is due.

    keep: what rank 0 leaves in the directory after each checkpoint; None removes nothing.
    commit_timeout_s: after how long a step that some rank has not saved is given up.
    longest_wait_s: how long a save waits for the one before to be written; then it is left out,
        so that a storage that hangs does not hang the training.
    pace: how often `should_save` says yes; by default every so often as loses the least time.
    agree: takes rank 0's number on every rank and gives it to all, as a broadcast does; by default
        torch.distributed's, where that is initialised.
    """

    def __init__(
        self,
        checkpointer: Checkpointer,
        *,
        keep: Keep | None = None,
        commit_timeout_s: float = 600.0,
        longest_wait_s: float = 60.0,
        pace: Pace | None = None,
        agree: Callable[[int], int] | None = None,
    ) -> None:
        self.checkpointer = checkpointer
        self._settings = {
            "directory": checkpointer.directory
            if is_url(checkpointer.directory)
            else os.path.abspath(checkpointer.directory),
            "rank": checkpointer.rank,
            "world_size": checkpointer.world_size,
            "attempt": checkpointer.attempt,
            "keep": keep.to_data() if keep is not None else None,
            "commit_timeout_s": commit_timeout_s,
        }
        self._pace = pace or Pace.for_job(
            checkpointer.world_size, os.environ.get(MTBF_VARIABLE, "")
        )
        self._longest_wait_s = longest_wait_s
        self._agree = agree
        self._next_step: int | None = None
        self._memory: Memory | None = None
        self._writer: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._writing: int | None = None
        self._uncommitted: set[int] = set()
        self._outcomes: list[Outcome] = []
        self._stalls_s: dict[int, float] = {}
        self._fenced = ""
        # At once, so that the first save does not wait for it.
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.finish()
        self.close()

    def should_save(self, step: int) -> bool:
        """Whether this step is to be saved; ask once a step, on every rank.

        All ranks get the same answer. After each save they agree on the next one, which follows
        what saving was found to cost and how often the job breaks; see `Pace`.
        """
        step = whole_number(step, "step")
        self._pace.stepped(time.monotonic())
        if self._next_step is None:
            due = step + self._pace.steps_until_next() - 1
            self._next_step = self._agreed(due)
        if step < self._next_step:
            return False
        self._next_step = None
        return True

    def save(self, step: int, state: Any) -> Stall:
        """Copy the state and leave it to the writer; returns how long that took.

        Waits for the save before to be written. Raises FencedAttempt when a newer attempt has
        begun, CheckpointError for a state that could not be read back.
        """
        step = whole_number(step, "step")
        try:
            kind = kind_of(state)
        except (TypeError, ImportError) as error:
            raise CheckpointError(
                f"rank {self.checkpointer.rank} cannot save step {step}: {error}"
            ) from error
        return self.save_shard(step, kind, lambda writer: write_state(state, kind, writer))

    def save_shard(self, step: int, kind: Kind, fill: Callable[[Writer], object]) -> Stall:
        """The same for a shard that `fill` writes."""
        began_s = time.monotonic()
        busy = self._busy_until(began_s + self._longest_wait_s)
        self._refuse_fenced()
        waited_s = time.monotonic() - began_s
        size_bytes = 0
        try:
            if not busy:
                self._start()
                size_bytes = self._copy(kind, fill)
                self._hand_over(step, kind, size_bytes)
            else:
                self._lost(step, f"step {self._writing} is still being written: left out")
        except OSError as error:
            self._lost(step, f"it could not be copied: {error.strerror or error}")
        stall = Stall(step, waited_s, time.monotonic() - began_s - waited_s, size_bytes)
        self._pace.stalled(stall.total_s)
        if self.checkpointer.rank == 0:
            self._stalls_s[step] = stall.total_s
        return stall

    def outcomes(self) -> list[Outcome]:
        """What became of saves since the last call; waits for nothing."""
        while self._socket is not None and self._hear(0.0):
            pass
        found, self._outcomes = self._outcomes, []
        return found

    def finish(self, timeout_s: float | None = None) -> list[Outcome]:
        """Wait until every save is a checkpoint or has failed; then like `outcomes`.

        Raises CheckpointError when that takes longer than `timeout_s`.
        """
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while self._writing is not None or self._uncommitted:
            left_s = None if deadline_s is None else deadline_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                waiting = sorted({*self._uncommitted, *filter(None, [self._writing])})
                raise CheckpointError(f"step {waiting[0]} is still being written after {timeout_s}")
            self._hear(left_s)
        return self.outcomes()

    def close(self) -> None:
        """Let the writer go; it finishes the shard it is at."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        writer, self._writer = self._writer, None
        if writer is not None:
            for end in (writer.terminate, writer.kill, lambda: None):
                try:
                    writer.wait(_END_S)
                    break
                except subprocess.TimeoutExpired:
                    end()
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def _busy_until(self, deadline_s: float) -> bool:
        """Wait for the save before; whether it is still being written then."""
        while self._writing is not None:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return True
            self._hear(left_s)
        return False

    def _start(self) -> None:
        """Have a writer; one that was killed is replaced."""
        if self._socket is not None:
            return
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._writer = subprocess.Popen(
                # -P: the job's folder may hold modules named like those of Python.
                [
                    *(sys.executable, "-P", "-m", "railweave.agents.checkpoint_writer"),
                    str(theirs.fileno()),
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                # Ctrl-C is for the rank, which may still want its last save written.
                start_new_session=True,
            )
        # Not as an argument, which others can see: a URL may hold a password.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.send(json.dumps(self._settings).encode())

    def _copy(self, kind: Kind, fill: Callable[[Writer], object]) -> int:
        if self._memory is None:
            self._memory = Memory()
        self._memory.rewind()
        with without_crc32() if kind is Kind.TORCH else contextlib.nullcontext():
            try:
                fill(self._memory)
            except Exception as error:
                # torch reports only that its writer failed; this is why.
                raise self._memory.error or error from error
        return self._memory.size_bytes

    def _hand_over(self, step: int, kind: Kind, size_bytes: int) -> None:
        message = {"step": step, "kind": str(kind), "size": size_bytes}
        data = json.dumps(message).encode()
        for last in (False, True):
            assert self._socket is not None and self._memory is not None
            try:
                socket.send_fds(self._socket, [data], [self._memory.handle])
                break
            except (BrokenPipeError, ConnectionResetError):
                if last:
                    raise
                # It was killed between two saves; nothing of this one is lost.
                self._ended()
                self._start()
        self._writing = step
        if self.checkpointer.rank == 0:
            self._uncommitted.add(step)

    def _hear(self, timeout_s: float | None) -> bool:
        """Take in one message of the writer; False when none came in time."""
        if self._socket is None:
            return False
        self._socket.settimeout(timeout_s)
        try:
            data = self._socket.recv(MESSAGE_BYTES)
        except (BlockingIOError, TimeoutError):
            return False
        except ConnectionResetError:
            data = b""
        finally:
            self._socket.settimeout(None)
        if not data:
            self._ended()
            return False
        self._heard(json.loads(data))
        return True

    def _heard(self, message: dict[str, Any]) -> None:
        step, what, took_s = message["step"], message["what"], message["took_s"]
        if message.get("fenced"):
            self._fenced = message["why"]
        if what in ("written", "failed"):
            self._writing = None
        if what in ("failed", "committed", "uncommitted"):
            self._uncommitted.discard(step)
        if what in ("written", "committed"):
            self._pace.wrote(took_s)
        if what == "committed":
            self._outcomes.append(Outcome(step, took_s, path=message["path"]))
            stall_s = self._stalls_s.pop(step, 0.0)
            text = f"step {step} is saved after {took_s:.3f} s; training stood for {stall_s:.3f} s"
            note("checkpoint", text, step=step, write_s=took_s, stall_s=stall_s)
        elif what == "written" and self.checkpointer.rank != 0:
            self._outcomes.append(Outcome(step, took_s))
        elif what != "written":
            self._failed(Outcome(step, took_s, why=message["why"]))

    def _ended(self) -> None:
        """The writer is gone: what it had not told of is lost."""
        assert self._socket is not None and self._writer is not None
        self._socket.close()
        self._socket = None
        code = self._writer.wait()
        lost = sorted({*self._uncommitted, *filter(None, [self._writing])})
        self._writing = None
        self._uncommitted.clear()
        for step in lost:
            ended = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
            self._lost(step, f"the process that writes checkpoints {ended}")

    def _lost(self, step: int, why: str) -> None:
        self._failed(Outcome(step, 0.0, why=f"{why}; the checkpoints before it are unharmed"))

    def _failed(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        self._stalls_s.pop(outcome.step, None)
        _log.warning("checkpoint of step %d: %s", outcome.step, outcome.why)
        rank = self.checkpointer.rank
        text = f"rank {rank}: step {outcome.step} is not saved: {outcome.why}"
        note("checkpoint-failed", text, step=outcome.step, rank=rank)

    def _refuse_fenced(self) -> None:
        if self._fenced:
            raise FencedAttempt(self._fenced)

    def _agreed(self, number: int) -> int:
        if self.checkpointer.world_size == 1:
            return number
        return (self._agree or _broadcast)(number)


def _broadcast(number: int) -> int:
    """Rank 0's number. Raises CheckpointError where there is nothing to send it with."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_initialized():
        raise CheckpointError(
            "the ranks cannot agree on when to save: initialise torch.distributed, or give "
            "agree=, a function that gives every rank the number of rank 0"
        )
    told = [number]
    torch.distributed.broadcast_object_list(told, src=0)
    return int(told[0])
