"""Checkpoints that any number of ranks can read: slices of tensors, planned by torch.distributed.

    from railweave.agents.checkpoint_reshard import load_sharded, save_sharded

    save_sharded(checkpoints, step, {"model": model.state_dict(), "step": step})    # every rank
    if rank == 0:
        checkpoints.commit(step)
    load_sharded(path, state)         # in place, whatever the number of ranks is now

DTensor and FSDP states are saved as the slices that each rank holds, plain tensors and other values
by one rank. torch plans who writes and reads which slice; what lies in the files is ours: a shard
is raw bytes of slices one after another, and `layout.json` says which bytes are which part of which
tensor, with a checksum of each. Nothing in it is unpickled but plain values, by torch's safe
loader.
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    SavePlan,
    SavePlanner,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from .checkpoint import Checkpointer, located
from .checkpoint_background import BackgroundSaves
from .checkpoint_history import CheckpointError, Latest, Place, Unusable, read_manifest
from .checkpoint_keep import holding
from .checkpoint_manifest import LAYOUT_NAME, Damaged, Kind, seal, shard_name, unseal
from .checkpoint_state import kind_of
from .checkpoint_storage import Storage, Writer

LAYOUT_FORMAT: Final = "railweave.layout/1"


@dataclass(frozen=True)
class Slice:
    """Where a part of the state lies: bytes of one rank's shard."""

    rank: int
    offset: int
    size_bytes: int
    sha256: str


def save_sharded(
    checkpoints: Checkpointer | BackgroundSaves,
    step: int,
    state: dict[str, Any],
    *,
    process_group: Any = None,
) -> None:
    """Save a state that any number of ranks can read; every rank calls this.

    With BackgroundSaves the ranks go on once the slices are copied. Rank 0 commits the step as it
    does after `save`. Raises CheckpointError, with the failure of whichever rank failed.
    """
    writer = _SliceWriter(checkpoints, step)
    try:
        save(state, storage_writer=writer, process_group=process_group, no_dist=_alone(writer))
    except CheckpointError:
        raise
    # What torch raises for a failure on any rank is no Exception.
    except (Exception, CheckpointException) as error:
        raise CheckpointError(f"cannot save step {step} in slices: {_reason(error)}") from error


def load_sharded(
    source: Latest | Place, state: dict[str, Any], *, process_group: Any = None
) -> None:
    """Fill `state` in place from a checkpoint saved by `save_sharded`; every rank calls this.

    state: tensors of the shapes wanted, plain or DTensor, each rank holding its slices of now;
    other values are replaced. Raises CheckpointError when it is damaged or lacks a part.
    """
    storage, folder, path = located(source)
    alone = not torch.distributed.is_initialized()
    try:
        with holding(storage, folder):
            reader = _SliceReader(storage, folder)
            load(state, storage_reader=reader, process_group=process_group, no_dist=alone)
    # What torch raises for a failure on any rank is no Exception.
    except (Exception, CheckpointException) as error:
        raise CheckpointError(f"cannot resume from {path}: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    """What went wrong, on the first rank where something did."""
    if isinstance(error, CheckpointException) and error.failures:
        rank, (first, _) = min(error.failures.items())
        return f"rank {rank}: {first}"
    return str(error)


def _alone(writer: _SliceWriter) -> bool:
    return writer.checkpointer.world_size == 1 and not torch.distributed.is_initialized()


class _SliceWriter(StorageWriter):
    """Writes this rank's slices as its shard; the coordinator writes the layout."""

    def __init__(self, checkpoints: Checkpointer | BackgroundSaves, step: int) -> None:
        self._saves = checkpoints
        self.checkpointer = (
            checkpoints.checkpointer if isinstance(checkpoints, BackgroundSaves) else checkpoints
        )
        self._step = step

    def reset(self, checkpoint_id: Any = None) -> None:
        """Nothing is kept between saves."""

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Nothing to prepare: the folder is made with the first file."""

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """As torch planned it."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """As torch planned it."""
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write this rank's slices, in the order of the plan."""
        self.checkpointer.remove_record(self._step, LAYOUT_NAME)
        blocks: list[memoryview] = []
        results = []
        offset = 0
        for item in plan.items:
            block = _content(item, planner)
            digest = hashlib.sha256(block).hexdigest()
            there = Slice(self.checkpointer.rank, offset, len(block), digest)
            results.append(WriteResult(item.index, len(block), there))
            blocks.append(block)
            offset += len(block)

        def fill(writer: Writer) -> None:
            for block in blocks:
                writer.write(block)

        if isinstance(self._saves, BackgroundSaves):
            self._saves.save_shard(self._step, Kind.SLICES, fill)
        else:
            self._saves.write_shard(self._step, Kind.SLICES, fill)
        done: Future[list[WriteResult]] = Future()
        done.set_result(results)
        return done

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Write the layout, for which the commit waits; the coordinator calls this."""
        slices = {r.index: cast(Slice, r.storage_data) for each in results for r in each}
        self.checkpointer.write_record(self._step, LAYOUT_NAME, _sealed(metadata, slices))

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Steps name checkpoints here."""
        return checkpoint_id is None


class _SliceReader(StorageReader):
    """Reads the slices that a plan asks for out of whichever shards hold them."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder
        self._manifest = read_manifest(storage, folder, None)
        if not self._manifest.reshardable:
            raise Unusable("it was not saved by save_sharded; use Checkpointer.load")
        self._metadata, self._slices = _unsealed(storage.read(f"{folder}/{LAYOUT_NAME}"))

    def reset(self, checkpoint_id: Any = None) -> None:
        """Nothing is kept between loads."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """What the layout says of the tensors."""
        return self._metadata

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        """Nothing to prepare."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """As torch planned it."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """As torch planned it."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read, check and hand over every slice of the plan; each file is opened once."""
        by_rank: dict[int, list[Any]] = {}
        for item in plan.items:
            by_rank.setdefault(self._slices[item.storage_index].rank, []).append(item)
        for rank, items in sorted(by_rank.items()):
            name = f"{self._folder}/{shard_name(rank, Kind.SLICES)}"
            wanted = self._manifest.shards[rank].sha256
            with self._storage.open(name, wanted_sha256=wanted) as stream:
                for item in items:
                    there = self._slices[item.storage_index]
                    stream.seek(there.offset)
                    content = stream.read(there.size_bytes)
                    if hashlib.sha256(content).hexdigest() != there.sha256:
                        raise Unusable(f"shard {rank}: {item.storage_index.fqn} is damaged")
                    self._hand_over(item, content, planner)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _hand_over(self, item: Any, content: bytes, planner: LoadPlanner) -> None:
        if item.type is LoadItemType.BYTE_IO:
            planner.load_bytes(item, io.BytesIO(content))
            return
        index = item.storage_index
        whole = self._metadata.state_dict_metadata[index.fqn]
        assert isinstance(whole, TensorStorageMetadata)  # its plan item is of a tensor
        chunk = next(each for each in whole.chunks if each.offsets == index.offset)
        tensor = _tensor(content, whole.properties.dtype, chunk.sizes)
        for dimension, (start, length) in enumerate(
            zip(item.storage_offsets, item.lengths, strict=True)
        ):
            tensor = tensor.narrow(dimension, start, length)
        target = planner.resolve_tensor(item).detach()
        target.copy_(tensor)
        planner.commit_tensor(item, target)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Steps name checkpoints here."""
        return checkpoint_id is None


def _content(item: Any, planner: SavePlanner) -> memoryview:
    """The bytes of a plan's item: a plain value through torch's format, a tensor as it lies."""
    found = planner.resolve_data(item)
    if isinstance(found, io.BytesIO):
        # What could not be read back is refused while the state still exists.
        found.seek(0)
        kind_of(torch.load(found, weights_only=True))
        return found.getbuffer()
    tensor = found.detach().contiguous().cpu().view(-1)
    return memoryview(tensor.view(torch.uint8).numpy().data) if tensor.numel() else memoryview(b"")


def _tensor(content: bytes, dtype: torch.dtype, sizes: torch.Size) -> torch.Tensor:
    if not content:
        return torch.empty(sizes, dtype=dtype)
    return torch.frombuffer(bytearray(content), dtype=dtype).view(sizes)


def _sealed(metadata: Metadata, slices: dict[MetadataIndex, Slice]) -> bytes:
    state: dict[str, Any] = {}
    for name, part in metadata.state_dict_metadata.items():
        if isinstance(part, BytesStorageMetadata):
            state[name] = {"slices": [_slice_data(slices[MetadataIndex(name)])]}
            continue
        state[name] = {
            "dtype": str(part.properties.dtype).removeprefix("torch."),
            "size": list(part.size),
            "slices": [
                {
                    **_slice_data(slices[MetadataIndex(name, chunk.offsets)]),
                    "offsets": list(chunk.offsets),
                    "sizes": list(chunk.sizes),
                }
                for chunk in part.chunks
            ],
        }
    paths = {name: list(path) for name, path in (metadata.planner_data or {}).items()}
    return seal({"format": LAYOUT_FORMAT, "state": state, "paths": paths})


def _slice_data(found: Slice) -> dict[str, Any]:
    return {
        "rank": found.rank,
        "offset": found.offset,
        "size_bytes": found.size_bytes,
        "sha256": found.sha256,
    }


def _unsealed(data: bytes) -> tuple[Metadata, dict[MetadataIndex, Slice]]:
    """Raises Damaged."""
    body = unseal(data, LAYOUT_FORMAT)
    state: dict[str, Any] = {}
    slices: dict[MetadataIndex, Slice] = {}
    try:
        for name, part in body["state"].items():
            found = [
                Slice(each["rank"], each["offset"], each["size_bytes"], each["sha256"])
                for each in part["slices"]
            ]
            if "dtype" not in part:
                state[name] = BytesStorageMetadata()
                slices[MetadataIndex(name)] = found[0]
                continue
            dtype = _DTYPES[part["dtype"]]
            chunks = [
                ChunkStorageMetadata(torch.Size(each["offsets"]), torch.Size(each["sizes"]))
                for each in part["slices"]
            ]
            state[name] = TensorStorageMetadata(
                TensorProperties(dtype=dtype), torch.Size(part["size"]), chunks
            )
            for chunk, there in zip(chunks, found, strict=True):
                if there.size_bytes != math.prod(chunk.sizes) * dtype.itemsize:
                    raise Damaged(f"{name}: a slice of {there.size_bytes} bytes for {chunk.sizes}")
                slices[MetadataIndex(name, chunk.offsets)] = there
        paths = {name: tuple(path) for name, path in body["paths"].items()}
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise Damaged(f"layout: {error!r}") from error
    return Metadata(state_dict_metadata=state, planner_data=paths), slices


def _dtypes() -> Iterator[tuple[str, torch.dtype]]:
    for name, value in vars(torch).items():
        if isinstance(value, torch.dtype):
            yield str(value).removeprefix("torch."), value
            yield name, value


_DTYPES: Final = dict(_dtypes())
