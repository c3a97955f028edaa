"""Copying a checkpoint out of wherever it lies into a folder, every byte compared on the way."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .checkpoint_history import (
    Check,
    CheckpointError,
    Unusable,
    current_fence,
    latest,
    newest_first,
    refuse_wrong_content,
    verified,
)
from .checkpoint_keep import holding
from .checkpoint_manifest import LAYOUT_NAME, MANIFEST_NAME, Manifest, parse_step_folder
from .checkpoint_state import ChecksumWriter
from .checkpoint_storage import FolderStorage, Storage

_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Restored:
    """A checkpoint that is whole in its new place."""

    path: str
    step: int
    size_bytes: int


def restore(storage: Storage, target: Path, step: int | None = None) -> Restored:
    """Copy the newest usable checkpoint, or that of a step, into a folder `target`.

    There it is a checkpoint like any other; its manifest is written last. Raises CheckpointError
    when there is none, it is damaged, or the folder has it already or cannot be written.
    """
    sink = FolderStorage(target)
    try:
        manifest, folder = _chosen(storage, step)
        if MANIFEST_NAME in sink.files(folder):
            raise CheckpointError(f"{sink.path(folder)} is there already; give another directory")
        sink.make_folder(folder)
        with holding(storage, folder):
            for shard in manifest.shards:
                name = f"{folder}/{shard.name}"
                with (
                    storage.open(name, wanted_sha256=shard.sha256) as stream,
                    sink.writing(name) as raw,
                ):
                    writer = ChecksumWriter(raw)
                    while block := stream.read(_BLOCK_BYTES):
                        writer.write(block)
                    refuse_wrong_content(shard, writer.size_bytes, writer.sha256)
            for name in (LAYOUT_NAME, MANIFEST_NAME):
                if name == MANIFEST_NAME or manifest.reshardable:
                    with sink.writing(f"{folder}/{name}") as writer_of_record:
                        writer_of_record.write(storage.read(f"{folder}/{name}"))
    except Unusable as fault:
        raise CheckpointError(f"cannot restore from {storage}: {fault}") from fault
    except OSError as error:
        raise CheckpointError(f"cannot restore into {target}: {error}") from error
    return Restored(sink.path(folder), manifest.step, manifest.size_bytes)


def _chosen(storage: Storage, step: int | None) -> tuple[Manifest, str]:
    """The manifest and the folder of the checkpoint to copy."""
    if step is None:
        # Sizes will do: every byte is compared while it is copied.
        found = latest(storage, check=Check.SIZES)
        if found.path is None or found.manifest is None:
            reasons = [f"{path}: {reason}" for path, reason in found.passed_over[:3]]
            why = f" ({'; '.join(reasons)})" if reasons else ""
            raise CheckpointError(f"no checkpoint to restore in {storage}{why}")
        return found.manifest, found.path.rstrip("/").rpartition("/")[2]
    fence = current_fence(storage)
    reasons = []
    for folder in newest_first(storage):
        parsed = parse_step_folder(folder)
        if parsed is None or parsed[0] != step:
            continue
        try:
            return verified(storage, folder, Check.SIZES, fence, None), folder
        except Unusable as fault:
            reasons.append(f"{folder}: {fault}")
    why = f" ({'; '.join(reasons)})" if reasons else ""
    raise CheckpointError(f"no usable checkpoint of step {step} in {storage}{why}")
