"""A rank's state as bytes and back: bytes stay as they are, all else goes through torch."""

from __future__ import annotations

import contextlib
import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from .checkpoint_manifest import Kind
from .checkpoint_storage import Writer

_PLAIN = (int, float, bool, complex, str, bytes, type(None))
_DEEPEST = 100


class ChecksumWriter:
    """Passes bytes on to a writer while counting and checksumming them."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._hash = hashlib.sha256()
        self.size_bytes = 0
        self.error: Exception | None = None

    @property
    def sha256(self) -> str:
        """Checksum of all bytes so far."""
        return self._hash.hexdigest()

    def write(self, data: Any) -> int:
        """Take bytes or any contiguous buffer."""
        view = memoryview(data).cast("B")
        try:
            self._writer.write(view)
        except Exception as error:
            # torch reports only that its writer failed; this is why.
            self.error = self.error or error
            raise
        self._hash.update(view)
        self.size_bytes += len(view)
        return len(view)

    def refuse_failed(self) -> None:
        """Raise the first error of a write, also when the caller of `write` swallowed it."""
        if self.error is not None:
            raise self.error

    def flush(self) -> None:
        """Nothing is held back here; torch asks for it."""


def kind_of(state: Any) -> Kind:
    """How a state will be written.

    Raises TypeError naming the first part of it that could not be read back, because only
    tensors, numbers, text and plain containers are ever unpickled.
    """
    if isinstance(state, bytes | bytearray | memoryview):
        return Kind.BYTES
    import torch

    plain = (*_PLAIN, torch.dtype, torch.device, torch.Size)
    # Others are read back only where they were declared safe, as torch does for DTensor.
    tensors = {torch.Tensor, torch.nn.Parameter, *torch.serialization.get_safe_globals()}

    def check(part: Any, place: str, depth: int) -> None:
        if depth > _DEEPEST:
            raise TypeError(f"{place[:60]}... is nested deeper than {_DEEPEST} levels")
        if type(part) in plain:
            return
        if isinstance(part, torch.Tensor) and type(part) in tensors:
            # What a user hangs on a tensor is written with it.
            for name, value in vars(part).items():
                check(value, f"{place}.{name}", depth + 1)
            return
        if type(part) in (dict, OrderedDict):
            for key, value in part.items():
                check(key, f"the key {key!r} of {place}", depth + 1)
                check(value, f"{place}[{key!r}]", depth + 1)
        elif type(part) in (list, tuple, set):
            for index, value in enumerate(part):
                check(value, f"{place}[{index}]", depth + 1)
        else:
            found = f"{type(part).__module__}.{type(part).__qualname__}"
            raise TypeError(
                f"{place} is a {found}, which would not be read back; "
                "save tensors, numbers, text, bytes, and dicts, lists, tuples or sets of them"
            )

    check(state, "state", 0)
    return Kind.TORCH


def write_state(state: Any, kind: Kind, writer: Writer) -> None:
    """Write a state of that kind."""
    if kind is Kind.BYTES:
        writer.write(state)
        return
    import torch

    torch.save(state, cast(BinaryIO, writer))


def read_state(stream: BinaryIO, kind: Kind) -> Any:
    """The state in a stream that was checked before; tensors come back on the CPU."""
    if kind is Kind.BYTES:
        return stream.read()
    import torch

    return torch.load(stream, map_location="cpu", weights_only=True)


@contextlib.contextmanager
def without_crc32() -> Iterator[None]:
    """Have torch leave out a checksum of its own, which costs more than the copy."""
    import torch

    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        yield
    finally:
        torch.serialization.set_crc32_options(before)
