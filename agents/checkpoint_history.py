"""The checkpoints in a directory: the newest usable one, why newer ones are not, and upkeep."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from .checkpoint_manifest import (
    MANIFEST_NAME,
    Damaged,
    Fence,
    Manifest,
    Receipt,
    Shard,
    fence_name,
    parse_fence_name,
    parse_step_folder,
    step_folder,
)
from .checkpoint_storage import Storage, open_storage

Place = str | os.PathLike[str] | Storage


class CheckpointError(RuntimeError):
    """A checkpoint could not be written, committed, read or found; the message says why."""


class FencedAttempt(CheckpointError):
    """A newer attempt of the job has begun; this one may not write any more."""


class Check(StrEnum):
    """How much of a checkpoint is read before it is called complete."""

    SIZES = "sizes"
    """The manifest, and that every shard exists with its size."""
    FULL = "full"
    """The same, and every byte of every shard against its checksum."""


class PassedOver(NamedTuple):
    """A checkpoint newer than the chosen one, and why it cannot be used."""

    path: str
    reason: str


@dataclass(frozen=True)
class Latest:
    """The newest usable checkpoint of a directory; `path` is None when there is none.

    passed_over: newer ones that cannot be used, newest first.
    """

    path: str | None = None
    step: int | None = None
    manifest: Manifest | None = None
    passed_over: tuple[PassedOver, ...] = ()

    def __bool__(self) -> bool:
        return self.path is not None


class Unusable(Exception):
    """Why a folder is not a checkpoint to resume from."""


def latest(directory: Place, *, check: Check = Check.FULL, world_size: int | None = None) -> Latest:
    """The newest complete checkpoint: the highest step, of the highest attempt that has it.

    With `world_size`, those written by another number of ranks are passed over. A directory that
    does not exist holds none. Raises CheckpointError when the directory cannot be listed.
    """
    storage = storage_at(directory)
    passed_over: list[PassedOver] = []
    try:
        fence = current_fence(storage)
        for folder in newest_first(storage):
            try:
                manifest = verified(storage, folder, check, fence, world_size)
            except Unusable as fault:
                passed_over.append(PassedOver(storage.path(folder), str(fault)))
                continue
            return Latest(storage.path(folder), manifest.step, manifest, tuple(passed_over))
    except OSError as error:
        raise CheckpointError(f"cannot list the checkpoints in {storage}: {error}") from error
    return Latest(passed_over=tuple(passed_over))


def fence(directory: Place, attempt: int) -> None:
    """Shut out every attempt below `attempt`, for good.

    Their checkpoints committed so far still count; what they commit from now on is refused, and
    where a process in another world manages to write it all the same, `latest` passes it over.
    Call it before `latest`, so that nothing newer can appear behind the answer.
    Raises FencedAttempt when a higher attempt has fenced this one, CheckpointError when the fence
    cannot be written.
    """
    attempt = whole_number(attempt, "attempt")
    try:
        name = fence_name(attempt)
    except ValueError as error:
        raise CheckpointError(f"cannot fence {directory}: {error}") from error
    storage = storage_at(directory)
    try:
        before = current_fence(storage)
        if before is not None and before.attempt >= attempt:
            refuse_fenced(storage, attempt)
            return
        storage.make_folder()
        admitted = frozenset(
            folder
            for folder in newest_first(storage)
            if not _fenced_out(folder, before) and MANIFEST_NAME in storage.files(folder)
        )
        with storage.writing(name) as writer:
            writer.write(Fence(attempt, admitted).to_bytes())
    except OSError as error:
        raise CheckpointError(f"cannot fence {storage} at attempt {attempt}: {error}") from error


def next_attempt(directory: Place) -> int:
    """A number for an attempt that nobody has numbered: above all that have written here.

    One rank asks and tells the others; ranks that ask separately may get different answers.
    """
    storage = storage_at(directory)
    attempts = [1]
    try:
        for folder in newest_first(storage):
            attempts.append(_step_and_attempt(folder)[1] + 1)
        before = current_fence(storage)
    except OSError as error:
        raise CheckpointError(f"cannot list the checkpoints in {storage}: {error}") from error
    return max([*attempts, before.attempt if before else 1])


def whole_number(value: Any, name: str) -> int:
    """A number as an int, whatever kind of integer it is. Raises CheckpointError for others."""
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise CheckpointError(f"{name} is {repr(value)[:60]}, not a whole number")


def storage_at(directory: Place) -> Storage:
    """The storage at a path or URL, or the one that was given. Raises CheckpointError."""
    if not isinstance(directory, str | os.PathLike):
        return directory
    try:
        return open_storage(directory)
    except (ValueError, OSError) as error:
        raise CheckpointError(f"{directory}: {error}") from error


def current_fence(storage: Storage, *, near: bool = False) -> Fence | None:
    """The highest fence of a directory; `near` as for `Storage.files`.

    The name alone shuts lower attempts out. When the content is damaged, whatever lower attempts
    have committed counts: a whole checkpoint of a late writer is better than none.
    """
    attempts = [parse_fence_name(name) for name in storage.files(near=near)]
    attempt = max((a for a in attempts if a is not None), default=None)
    if attempt is None:
        return None
    try:
        found = Fence.parse(storage.read(fence_name(attempt)))
    except Damaged:
        return Fence(attempt, frozenset(newest_first(storage)))
    return Fence(attempt, found.admitted)


def refuse_fenced(storage: Storage, attempt: int) -> None:
    """Raise FencedAttempt when a higher attempt has fenced the directory."""
    # Every node has been given the fence; asking all of them at each save would cost too much.
    fence = current_fence(storage, near=True)
    if fence is not None and attempt < fence.attempt:
        raise FencedAttempt(
            f"attempt {attempt} may not write checkpoints any more: attempt {fence.attempt} of "
            "this job has begun; end this process"
        )


def verified(
    storage: Storage, folder: str, check: Check, fence: Fence | None, world_size: int | None
) -> Manifest:
    """The manifest of a folder that passes the check. Raises Unusable with the reason."""
    manifest = read_manifest(storage, folder, world_size)
    if _fenced_out(folder, fence) and fence is not None:
        raise Unusable(
            f"written by attempt {manifest.attempt} after attempt {fence.attempt} had fenced it out"
        )
    try:
        files = storage.files(folder)
    except OSError as error:
        raise Unusable(f"cannot be listed: {error.strerror or error}") from error
    for shard in manifest.shards:
        size_bytes = files.get(shard.name)
        if size_bytes is None:
            raise Unusable(f"shard {shard.rank} is missing")
        refuse_wrong_size(shard, size_bytes)
    if check is Check.FULL:
        for shard in manifest.shards:
            try:
                name = f"{folder}/{shard.name}"
                found = storage.checksum(name, wanted_sha256=shard.sha256)
                refuse_wrong_content(shard, *found)
            except OSError as error:
                raise Unusable(
                    f"shard {shard.rank} cannot be read: {error.strerror or error}"
                ) from error
    return manifest


def read_manifest(storage: Storage, folder: str, world_size: int | None) -> Manifest:
    """The manifest of a folder, as it was committed. Raises Unusable with the reason."""
    try:
        manifest = Manifest.parse(storage.read(f"{folder}/{MANIFEST_NAME}"))
    except FileNotFoundError as error:
        raise Unusable(_unfinished(storage, folder)) from error
    except Damaged as error:
        raise Unusable(f"manifest damaged: {error}") from error
    except OSError as error:
        raise Unusable(f"manifest cannot be read: {error.strerror or error}") from error
    if step_folder(manifest.step, manifest.attempt) != folder:
        raise Unusable(
            f"its manifest is of step {manifest.step}, attempt {manifest.attempt}: "
            "files of another checkpoint lie here"
        )
    if world_size not in (None, manifest.world_size) and not manifest.reshardable:
        raise Unusable(f"written by {manifest.world_size} ranks, not {world_size}")
    return manifest


def refuse_wrong_size(shard: Shard, size_bytes: int) -> None:
    """Raise Unusable when a shard's file is shorter or longer than it was written."""
    if size_bytes < shard.size_bytes:
        raise Unusable(f"shard {shard.rank} has {size_bytes} of {shard.size_bytes} bytes")
    if size_bytes > shard.size_bytes:
        raise Unusable(f"shard {shard.rank} has {size_bytes} bytes, not {shard.size_bytes}")


def refuse_wrong_content(shard: Shard, size_bytes: int, sha256: str) -> None:
    """Raise Unusable when a shard's bytes are not those that were written."""
    refuse_wrong_size(shard, size_bytes)
    if sha256 != shard.sha256:
        raise Unusable(
            f"shard {shard.rank}: checksum differs "
            f"(sha256 {sha256[:12]}..., written as {shard.sha256[:12]}...)"
        )


def read_receipts(
    storage: Storage, folder: str, names: set[str]
) -> Iterator[tuple[str, Receipt | str]]:
    """The receipts of that name in a folder, or what is wrong with each."""
    for name in sorted(names):
        try:
            yield name, Receipt.parse(storage.read(f"{folder}/{name}"))
        except Damaged as error:
            yield name, f"{name} is damaged: {error}"
        except OSError as error:
            yield name, f"{name} cannot be read: {error.strerror or error}"


def _unfinished(storage: Storage, folder: str) -> str:
    try:
        files = storage.files(folder)
    except OSError as error:
        return f"cannot be listed: {error.strerror or error}"
    names = {n for n in files if n.startswith("shard-") and n.endswith(".json")}
    receipts = [r for _, r in read_receipts(storage, folder, names) if isinstance(r, Receipt)]
    if not receipts:
        return "no manifest: the writing ranks ended before any shard was whole"
    world_size = receipts[0].world_size
    missing = sorted(set(range(world_size)) - {receipt.shard.rank for receipt in receipts})
    if not missing:
        return f"no manifest: all {world_size} shards are whole, but it was never committed"
    shown = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
    return (
        f"no manifest: {len(receipts)} of {world_size} shards are whole, "
        f"none from {'rank' if len(missing) == 1 else 'ranks'} {shown}"
    )


def newest_first(storage: Storage) -> list[str]:
    """Names of the folders of steps, highest step first, then highest attempt."""
    named = [folder for folder in storage.folders() if parse_step_folder(folder)]
    return sorted(named, key=_step_and_attempt, reverse=True)


def _step_and_attempt(folder: str) -> tuple[int, int]:
    parsed = parse_step_folder(folder)
    if parsed is None:
        raise ValueError(f"{folder!r} is not a checkpoint's folder")
    return parsed


def _fenced_out(folder: str, fence: Fence | None) -> bool:
    if fence is None or folder in fence.admitted:
        return False
    return _step_and_attempt(folder)[1] < fence.attempt
