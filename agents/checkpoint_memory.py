"""A memory file that a state is copied into, and that another process can read by its handle."""

from __future__ import annotations

import mmap
import os
from typing import Any

_MAPPED_BYTES = 2 << 20
"""What the file grows by."""


class Memory:
    """A memory file that is written from its start, again and again; its pages stay."""

    def __init__(self) -> None:
        self.handle = os.memfd_create("railweave-checkpoint", os.MFD_CLOEXEC)
        self._mapped: mmap.mmap | None = None
        self._capacity = 0
        self.size_bytes = 0
        self.error: OSError | None = None

    def rewind(self) -> None:
        """Start over."""
        self.size_bytes = 0
        self.error = None

    def write(self, data: Any, /) -> int:
        """Take bytes or any contiguous buffer. Raises OSError where there is no memory."""
        # Once for every few bytes that torch writes: the stall is mostly this.
        view = memoryview(data).cast("B")
        start = self.size_bytes
        self.size_bytes = end = start + len(view)
        if end > self._capacity:
            self._grow(end)
        self._mapped[start:end] = view  # type: ignore[index]
        return end - start

    def flush(self) -> None:
        """Nothing is held back; torch asks for it."""

    def _grow(self, end: int) -> None:
        try:
            # Twice as much costs nothing: pages that are never touched are not there.
            capacity = -(-2 * end // _MAPPED_BYTES) * _MAPPED_BYTES
            os.ftruncate(self.handle, capacity)
            grown = mmap.mmap(self.handle, capacity)
        except OSError as error:
            self.error = error
            raise
        if self._mapped is not None:
            self._mapped.close()
        self._mapped, self._capacity = grown, capacity

    def close(self) -> None:
        """Let go of it; a writer that still reads it has a handle of its own."""
        if self._mapped is not None:
            self._mapped.close()
        os.close(self.handle)
