"""Reading rank logs: bounded, whatever a rank wrote into them.

Standard library only, because the guard imports it.
"""

from __future__ import annotations

import codecs
import os
import re
from pathlib import Path

_TAIL_BYTES = 32 * 1024
_LINE_CHARACTERS = 500
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")


def log_path(folder: Path, rank: int) -> Path:
    """Where a rank's output goes, in its attempt's folder."""
    return folder / f"rank-{rank}.log"


def last_lines(path: Path, count: int = 20) -> list[str]:
    """The last `count` lines of a log without terminal control codes, each cut to 500 characters.

    Looks at no more than the last 32 KiB; an unreadable log has no lines.
    """
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            stream.seek(max(0, size - _TAIL_BYTES))
            text = stream.read(_TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    lines = [_ESCAPES.sub("", line.rstrip("\r").rpartition("\r")[2]) for line in text.split("\n")]
    if lines and not lines[-1]:
        lines.pop()
    return [
        line if len(line) <= _LINE_CHARACTERS else line[: _LINE_CHARACTERS - 1] + "…"
        for line in lines[-count:]
    ]


def read_chunk(path: Path, offset: int, limit: int) -> tuple[str, int, int]:
    """Text from byte `offset` (from the end when negative), the next offset, and the file's size.

    At most `limit` bytes are read. A character that the limit cuts is left for the next call.
    Raises OSError.
    """
    with path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        start = max(0, size + offset) if offset < 0 else min(offset, size)
        stream.seek(start)
        data = stream.read(limit)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data)
    left_over = len(decoder.getstate()[0])
    if left_over == len(
        data
    ):  # nothing else to give: a lone broken character must not stop a reader
        return data.decode("utf-8", "replace"), start + len(data), size
    return text, start + len(data) - left_over, size
