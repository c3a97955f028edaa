"""Making a step's folder a checkpoint: all receipts gathered, shards compared, manifest written."""

from __future__ import annotations

import time

from .checkpoint_history import (
    Check,
    CheckpointError,
    Unusable,
    read_receipts,
    refuse_fenced,
    refuse_wrong_content,
    refuse_wrong_size,
)
from .checkpoint_manifest import (
    LAYOUT_NAME,
    MANIFEST_NAME,
    Kind,
    Manifest,
    Shard,
    receipt_name,
)
from .checkpoint_storage import Storage


class Commit:
    """One step of an attempt on its way to being a checkpoint.

    shards: those whose receipts were read, by rank. waiting: ranks without one. Slices are nothing
    without the layout that says what they are, so their step waits for it too.
    """

    def __init__(
        self, storage: Storage, folder: str, step: int, attempt: int, world_size: int
    ) -> None:
        self._storage = storage
        self._folder = folder
        self.step = step
        self._attempt = attempt
        self._world_size = world_size
        self.shards: dict[int, Shard] = {}
        self.waiting = set(range(world_size))
        self._problems: list[str] = []
        self._layout_missing = False

    def look(self) -> bool:
        """Read the receipts that have come; whether all is there that makes a checkpoint.

        Raises CheckpointError for a receipt that belongs elsewhere, OSError.
        """
        names = {receipt_name(rank): rank for rank in self.waiting}
        files = set(self._storage.files(self._folder, near=True))
        self._problems = []
        for name, receipt in read_receipts(self._storage, self._folder, files & set(names)):
            if isinstance(receipt, str):
                self._problems.append(receipt)
                continue
            expected = (self.step, self._attempt, self._world_size, names[name])
            found = (receipt.step, receipt.attempt, receipt.world_size, receipt.shard.rank)
            if found != expected:
                raise CheckpointError(
                    "{}: a receipt of step {}, attempt {}, {} ranks, rank {}, where step {}, "
                    "attempt {}, {} ranks, rank {} belongs".format(name, *found, *expected)
                )
            self.shards[names[name]] = receipt.shard
            self.waiting.discard(names[name])
        sliced = any(shard.kind is Kind.SLICES for shard in self.shards.values())
        self._layout_missing = sliced and LAYOUT_NAME not in files
        return not self.waiting and not self._layout_missing

    def late(self) -> str:
        """What is missing, and what is wrong with receipts that are there."""
        late = sorted(self.waiting)
        shown = ", ".join(map(str, late[:8])) + (", ..." if len(late) > 8 else "")
        missing = [f"{len(late)} of {self._world_size} ranks have not saved it ({shown})"]
        if not late:
            missing = []
        if self._layout_missing:
            missing.append("the layout of its slices is not written")
        return "; ".join([*missing, *self._problems[:3]])

    def write(self, check: Check) -> str:
        """Write the manifest once `look` has found all receipts; returns the checkpoint's path.

        Raises FencedAttempt, CheckpointError for a shard that is not what its receipt says, and
        OSError.
        """
        shards = tuple(self.shards[rank] for rank in range(self._world_size))
        manifest = Manifest(self.step, self._attempt, time.time(), shards)
        self._refuse_changed(manifest, check)
        refuse_committed(self._storage, self._folder, self.step, self._attempt)
        refuse_fenced(self._storage, self._attempt)
        with self._storage.writing(f"{self._folder}/{MANIFEST_NAME}") as writer:
            writer.write(manifest.to_bytes())
        return self._storage.path(self._folder)

    def _refuse_changed(self, manifest: Manifest, check: Check) -> None:
        files = self._storage.files(self._folder)
        try:
            for shard in manifest.shards:
                if shard.name not in files:
                    raise Unusable(f"shard {shard.rank} is missing")
                refuse_wrong_size(shard, files[shard.name])
                if check is Check.FULL:
                    found = self._storage.checksum(f"{self._folder}/{shard.name}")
                    refuse_wrong_content(shard, *found)
        except Unusable as fault:
            raise CheckpointError(
                f"step {manifest.step} is not committed: {fault} at "
                f"{self._storage.path(self._folder)}"
            ) from fault


def refuse_committed(storage: Storage, folder: str, step: int, attempt: int) -> None:
    """Raise CheckpointError when the folder is a checkpoint already."""
    if MANIFEST_NAME in storage.files(folder, near=True):
        raise CheckpointError(
            f"step {step} of attempt {attempt} is already committed at "
            f"{storage.path(folder)}; a checkpoint is never written twice"
        )
