"""Which checkpoints stay, and who is reading one: removal takes neither these nor the last good."""

from __future__ import annotations

import contextlib
import math
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from .checkpoint_history import (
    Check,
    CheckpointError,
    Place,
    Unusable,
    current_fence,
    newest_first,
    read_manifest,
    storage_at,
    verified,
)
from .checkpoint_manifest import Damaged, Hold, Manifest, hold_name, parse_hold_name
from .checkpoint_storage import Storage

HOLD_S = 3600.0
"""How long a reader that was killed keeps a checkpoint from being removed."""


@dataclass(frozen=True)
class Keep:
    """What stays of the usable checkpoints; a checkpoint stays when any rule keeps it.

    last: the newest so many; at least the last good one. every_steps: for good, those of steps
    that are multiples of it. within_s: those committed no longer ago than that.
    """

    last: int = 3
    every_steps: int | None = None
    within_s: float | None = None

    def __post_init__(self) -> None:
        if self.last < 1:
            raise ValueError(f"keep is {self.last}: at least the last good checkpoint must stay")
        if self.every_steps is not None and self.every_steps < 1:
            raise ValueError(f"every_steps is {self.every_steps}; it must be at least 1, or None")
        if self.within_s is not None and not (self.within_s >= 0 and math.isfinite(self.within_s)):
            raise ValueError(f"within_s is {self.within_s}; give seconds of at least 0, or None")

    def keeps(self, manifest: Manifest, newer: int, now_s: float) -> bool:
        """Whether a usable checkpoint stays; `newer` is how many usable ones are newer."""
        if newer < self.last:
            return True
        if self.every_steps is not None and manifest.step % self.every_steps == 0:
            return True
        return self.within_s is not None and manifest.committed_s >= now_s - self.within_s

    def to_data(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> Self:
        """From plain data. Raises ValueError, TypeError."""
        return cls(**data)


def prune(
    directory: Place, keep: int | Keep, *, check: Check = Check.FULL, now_s: float | None = None
) -> tuple[str, ...]:
    """Remove what `keep` (a number: the newest so many) does not keep; returns the removed paths.

    Unfinished and damaged ones are removed once a newer usable one exists, never before, and the
    usable ones that are kept have passed `check` in this call. One that is being read stays.
    now_s: wall-clock time. Raises CheckpointError.
    """
    rule = keep if isinstance(keep, Keep) else Keep(keep)
    clock_s = time.time() if now_s is None else now_s
    storage = storage_at(directory)
    good = 0
    removed: list[str] = []
    try:
        fence = current_fence(storage)
        held = _held(storage, clock_s)
        for folder in newest_first(storage):
            try:
                if rule.keeps(read_manifest(storage, folder, None), good, clock_s):
                    verified(storage, folder, check, fence, None)
                    good += 1
                    continue
            except Unusable:
                if not good:
                    continue
            if folder in held:
                continue
            storage.remove_folder(folder)
            removed.append(storage.path(folder))
    except OSError as error:
        raise CheckpointError(f"cannot prune {storage}: {error}") from error
    return tuple(removed)


@contextlib.contextmanager
def holding(storage: Storage, folder: str) -> Iterator[None]:
    """Keep a checkpoint from being removed while it is read.

    Where nothing can be written, as on a read-only mount, nobody removes anything from there.
    """
    name = hold_name(folder, secrets.token_hex(8))
    with contextlib.suppress(OSError), storage.writing(name) as writer:
        writer.write(Hold(folder, time.time()).to_bytes())
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            storage.remove(name)


def _held(storage: Storage, now_s: float) -> set[str]:
    """Folders that someone reads now; what killed readers left is removed after a while."""
    found = set()
    for name in storage.files():
        folder = parse_hold_name(name)
        if folder is None:
            continue
        with contextlib.suppress(OSError):
            try:
                since_s = Hold.parse(storage.read(name)).since_s
            except Damaged:
                since_s = -math.inf  # whoever wrote it was killed before it began to read
            if abs(now_s - since_s) <= HOLD_S:
                found.add(folder)
            else:
                storage.remove(name)
    return found
