"""Checkpoints of a training job: every rank saves its shard, one rank commits, all can resume.

    from railweave.agents.checkpoint import Checkpointer

    checkpoints = Checkpointer()             # directory, rank and attempt from the environment
    checkpoints.save(step, {"model": model.state_dict(), "step": step})   # every rank
    if rank == 0:
        checkpoints.commit(step, timeout_s=600)
    state = checkpoints.load(os.environ["RAILWEAVE_RESUME_FROM"])         # after a restart

`checkpoint_background.BackgroundSaves` does the same while training goes on.

A step of an attempt is a folder of its own. A shard is written under a temporary name, checksummed,
synced and renamed; the manifest that names all shards is written last in the same way. Until then
the folder is not a checkpoint. Needs no Ray, and PyTorch only for states that are not bytes.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from .checkpoint_commit import Commit, refuse_committed
from .checkpoint_history import (
    Check,
    CheckpointError,
    FencedAttempt,
    Latest,
    PassedOver,
    Place,
    Unusable,
    fence,
    latest,
    next_attempt,
    read_manifest,
    refuse_fenced,
    refuse_wrong_content,
    storage_at,
    whole_number,
)
from .checkpoint_keep import Keep, holding, prune
from .checkpoint_manifest import (
    MANIFEST_NAME,
    Kind,
    Manifest,
    Receipt,
    Shard,
    parse_step_folder,
    receipt_name,
    shard_name,
    step_folder,
)
from .checkpoint_state import ChecksumWriter, kind_of, read_state, write_state
from .checkpoint_storage import Storage, checksum
from .notes import note

__all__ = [
    "Check",
    "CheckpointError",
    "CheckpointTimeout",
    "Checkpointer",
    "FencedAttempt",
    "Keep",
    "Kind",
    "Latest",
    "Manifest",
    "PassedOver",
    "Shard",
    "fence",
    "latest",
    "next_attempt",
    "prune",
]

DIRECTORY_VARIABLE: Final = "RAILWEAVE_CHECKPOINT_DIR"
ATTEMPT_VARIABLE: Final = "RAILWEAVE_ATTEMPT"
_FIRST_POLL_S: Final = 0.005
_SLOWEST_POLL_S: Final = 0.5


class CheckpointTimeout(CheckpointError):
    """Some ranks did not save their shard in time; the message names them."""


class Checkpointer:
    """One rank's access to the checkpoints of its job.

    directory: folder or URL; else RAILWEAVE_CHECKPOINT_DIR.
    rank, world_size: else RANK and WORLD_SIZE, else a single rank.
    attempt: else RAILWEAVE_ATTEMPT; a single rank may leave it out, and gets the next free number.
        Every launch needs a number of its own, so that what an earlier launch left unfinished is
        never mixed with its shards.
    Raises CheckpointError when one of them is missing or makes no sense.
    """

    def __init__(
        self,
        directory: Place | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        attempt: int | None = None,
    ) -> None:
        place = os.environ.get(DIRECTORY_VARIABLE, "") if directory is None else directory
        if not str(place):
            raise CheckpointError(f"no checkpoint directory: give one, or set {DIRECTORY_VARIABLE}")
        self.directory = str(place)
        self.rank = _number(rank, "rank", "RANK", 0, 0)
        self.world_size = _number(world_size, "world_size", "WORLD_SIZE", 1, 1)
        if self.rank >= self.world_size:
            raise CheckpointError(f"rank {self.rank} of {self.world_size} ranks does not exist")
        self._storage = storage_at(place)
        self._told_full = False
        unnumbered = attempt is None and not os.environ.get(ATTEMPT_VARIABLE)
        if unnumbered and self.world_size > 1:
            raise CheckpointError(
                f"no attempt number: set {ATTEMPT_VARIABLE}, or give attempt=, the same on all "
                "ranks (rank 0 can take next_attempt(directory) and broadcast it)"
            )
        self.attempt = (
            next_attempt(place)
            if unnumbered
            else _number(attempt, "attempt", ATTEMPT_VARIABLE, 0, 0)
        )

    def save(self, step: int, state: Any) -> Shard:
        """Write this rank's state of a step, so that it is there for good when this returns.

        state: bytes, kept as they are; or tensors, numbers, text and plain containers of them.
        Returns what was written. Raises FencedAttempt when a newer attempt has begun,
        CheckpointError when the state cannot be saved or the place refuses it; whatever was
        complete before stays complete.
        """
        step = whole_number(step, "step")
        self._folder(step)
        kind = self._kind_of(step, state)
        return self.write_shard(step, kind, lambda writer: write_state(state, kind, writer))

    def write_shard(self, step: int, kind: Kind, fill: Callable[[ChecksumWriter], object]) -> Shard:
        """Write this rank's shard of a step with what `fill` writes, then its receipt.

        Raises what `save` raises.
        """
        folder = self._folder(step)
        name = f"{folder}/{shard_name(self.rank, kind)}"
        receipt = f"{folder}/{receipt_name(self.rank)}"
        writer: ChecksumWriter | None = None
        try:
            refuse_fenced(self._storage, self.attempt)
            self._storage.make_folder(folder)
            refuse_committed(self._storage, folder, step, self.attempt)
            # A shard saved again must not be vouched for by the receipt of its predecessor.
            self._storage.remove(receipt)
            with self._storage.writing(name) as raw:
                writer = ChecksumWriter(raw)
                fill(writer)
                writer.refuse_failed()
            shard = Shard(self.rank, kind, writer.size_bytes, writer.sha256)
            # Writing may have taken long, for a rank that hung meanwhile even days.
            refuse_fenced(self._storage, self.attempt)
            with self._storage.writing(receipt) as raw:
                raw.write(Receipt(step, self.attempt, self.world_size, shard).to_bytes())
        except CheckpointError:
            raise
        except Exception as error:
            raise self._write_error(error, step, name, writer) from error
        self._told_full = False
        return shard

    def commit(
        self,
        step: int,
        timeout_s: float = 600.0,
        *,
        barrier: Callable[[], object] | None = None,
        check: Check = Check.SIZES,
    ) -> str:
        """Make a step's folder a checkpoint once every rank has saved; one rank calls this.

        Waits up to `timeout_s` for the receipts of all ranks, compares the shards with them
        (`check` FULL reads every byte back), and writes the manifest. `barrier`, when given, is
        called first; the other ranks call the same barrier after `save`.
        Returns the checkpoint's path. Raises CheckpointTimeout naming the ranks that are late,
        FencedAttempt when a newer attempt has begun, CheckpointError when a shard is not what its
        receipt says or the manifest cannot be written.
        """
        step = whole_number(step, "step")
        folder = self._folder(step)
        if barrier is not None:
            barrier()
        commit = self.begin_commit(step)
        deadline = time.monotonic() + timeout_s
        poll_s = _FIRST_POLL_S
        try:
            while not commit.look():
                if not time.monotonic() < deadline:
                    raise CheckpointTimeout(
                        f"step {step} is not committed after {timeout_s:g} s: {commit.late()}"
                    )
                refuse_fenced(self._storage, self.attempt)
                time.sleep(poll_s)
                poll_s = min(2 * poll_s, _SLOWEST_POLL_S)
            return commit.write(check)
        except OSError as error:
            raise CheckpointError(
                f"step {step} is saved but not committed: {error.strerror or error} at "
                f"{self._storage.path(folder)}; the checkpoints before it are unharmed"
            ) from error

    def write_record(self, step: int, name: str, record: bytes) -> None:
        """Write a record beside the shards of a step that is not committed yet.

        Raises FencedAttempt, CheckpointError.
        """
        folder = self._folder(step)
        try:
            refuse_fenced(self._storage, self.attempt)
            self._storage.make_folder(folder)
            refuse_committed(self._storage, folder, step, self.attempt)
            with self._storage.writing(f"{folder}/{name}") as writer:
                writer.write(record)
        except OSError as error:
            raise self._write_error(error, step, f"{folder}/{name}", None) from error

    def remove_record(self, step: int, name: str) -> None:
        """Remove what an earlier try of the same step wrote, lest it be taken for this one's.

        Raises CheckpointError.
        """
        folder = self._folder(step)
        try:
            self._storage.make_folder(folder)
            refuse_committed(self._storage, folder, step, self.attempt)
            self._storage.remove(f"{folder}/{name}")
        except OSError as error:
            raise self._write_error(error, step, f"{folder}/{name}", None) from error

    def discard(self, step: int) -> None:
        """Remove what there is of a step that will not be committed. Raises OSError."""
        folder = self._folder(step)
        if MANIFEST_NAME not in self._storage.files(folder):
            self._storage.remove_folder(folder)

    def begin_commit(self, step: int) -> Commit:
        """A commit that is looked at from time to time instead of waited for."""
        folder = self._folder(step)
        return Commit(self._storage, folder, step, self.attempt, self.world_size)

    def latest(self, *, check: Check = Check.FULL) -> Latest:
        """The newest usable checkpoint written by this many ranks; see `latest`.

        One rank asks and tells the others its path, so that all resume from the same one.
        """
        return latest(self._storage, check=check, world_size=self.world_size)

    def load(self, source: Latest | Place) -> Any:
        """This rank's state in a checkpoint, checked against its size and checksum.

        source: what `latest` gave, or the path or URL of a step's folder, also of another
        directory. Tensors come back on the CPU. Raises CheckpointError when it is not a complete
        checkpoint of this many ranks, or the shard is not what was written.
        """
        storage, folder, path = located(source)
        return self._loaded(storage, folder, path)

    def load_from(self, storage: Storage, source: Latest | Place) -> Any:
        """The same out of a storage that no path or URL alone leads to."""
        _, folder, path = _named(source)
        return self._loaded(storage, folder, path)

    def _loaded(self, storage: Storage, folder: str, path: str) -> Any:
        try:
            manifest = read_manifest(storage, folder, self.world_size)
            shard = manifest.shards[self.rank]
            if shard.kind is Kind.SLICES:
                raise Unusable("it was saved in slices; use load_sharded")
            with (
                holding(storage, folder),
                storage.open(f"{folder}/{shard.name}", wanted_sha256=shard.sha256) as stream,
            ):
                refuse_wrong_content(shard, *checksum(stream))
                stream.seek(0)
                return read_state(stream, shard.kind)
        except Exception as error:
            raise CheckpointError(f"cannot resume rank {self.rank} from {path}: {error}") from error

    def _folder(self, step: int) -> str:
        try:
            return step_folder(step, self.attempt)
        except ValueError as error:
            raise CheckpointError(str(error)) from error

    def _kind_of(self, step: int, state: Any) -> Kind:
        try:
            return kind_of(state)
        except (TypeError, ImportError) as error:
            raise CheckpointError(f"rank {self.rank} cannot save step {step}: {error}") from error

    def _write_error(
        self, error: Exception, step: int, name: str, writer: ChecksumWriter | None
    ) -> CheckpointError:
        if writer is not None and writer.error is not None:
            error = writer.error
        cause = (isinstance(error, OSError) and error.strerror) or str(error)
        done = f" after {writer.size_bytes} bytes" if writer is not None else ""
        free_bytes = None
        with suppress(OSError):
            free_bytes = self._storage.free_bytes()
        free = "" if free_bytes is None else f" ({free_bytes} bytes free there)"
        told = (
            f"rank {self.rank} cannot save step {step}: {cause}{done} at "
            f"{self._storage.path(name)}{free}; the checkpoints before it are unharmed"
        )
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        if full and not self._told_full:
            self._told_full = True  # once until there is room again
            note("disk_full", told, step=step, rank=self.rank)
        return CheckpointError(told)


def _number(given: int | None, name: str, variable: str, default: int, least: int) -> int:
    if given is not None:
        value, source = whole_number(given, name), name
    else:
        text = os.environ.get(variable, "")
        source = variable
        try:
            value = int(text) if text else default
        except ValueError as error:
            raise CheckpointError(f"{variable} is {text!r}, not a whole number") from error
    if value < least:
        raise CheckpointError(f"{source} is {value}; it must be at least {least}")
    return value


def located(source: Latest | Place) -> tuple[Storage, str, str]:
    """Storage and folder of a checkpoint, and its path for messages."""
    directory, folder, path = _named(source)
    return storage_at(directory), folder, path


def _named(source: Latest | Place) -> tuple[str, str, str]:
    """Directory and folder of a checkpoint, and its whole path."""
    if isinstance(source, Latest):
        if source.path is None:
            why = "; ".join(f"{path}: {reason}" for path, reason in source.passed_over[:3])
            raise CheckpointError(f"there is no checkpoint to load{f' ({why})' if why else ''}")
        source = source.path
    path = str(source).rstrip("/")
    folder = path.rpartition("/")[2]
    if parse_step_folder(folder) is None:
        raise CheckpointError(
            f"{path or '(empty)'} is not a checkpoint's folder; "
            "give one like .../step-000000000010.attempt-0001"
        )
    return path.removesuffix(folder) or ".", folder, path
