"""Notes: what a rank has to say to the job's history, such as a checkpoint that could not be saved.

The rank appends a line to a file beside its report of progress; the node's agent tells the daemon
how long the file is with each sign of life, and the daemon reads it when it has grown. Standard
library only.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .progress import VARIABLE

NAME = "notes.jsonl"
KINDS = frozenset({"checkpoint", "checkpoint-failed", "disk_full"})
"""What may be noted; a rank cannot write other events into the history."""
_LINE_BYTES = 4096
_MESSAGE_LENGTH = 1500
_FILE_BYTES = 1 << 20


@dataclass(frozen=True)
class Note:
    """One line. index: its place in the file, counting lines that cannot be used."""

    index: int
    kind: str
    message: str
    data: dict[str, Any]


def note(kind: str, message: str, **data: float | str) -> None:
    """Tell the job's history something; without Railweave, or with too much said, nothing happens.

    data: numbers and short texts.
    """
    place = os.environ.get(VARIABLE, "")
    line = {"kind": kind, "message": message[:_MESSAGE_LENGTH], "data": data}
    text = json.dumps(line).encode() + b"\n"
    if not place or len(text) > _LINE_BYTES:
        return
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    with suppress(OSError):
        handle = os.open(Path(place).parent / NAME, flags, 0o600)
        try:
            if os.fstat(handle).st_size < _FILE_BYTES:
                os.write(handle, text)
        finally:
            os.close(handle)


def size_bytes(folder: Path) -> int:
    """How much has been noted in an attempt's folder."""
    try:
        return (folder / NAME).stat().st_size
    except OSError:
        return 0


def read_notes(folder: Path, after: int = 0) -> list[Note]:
    """The notes in an attempt's folder behind the first `after` lines; what is no note is left out.

    The last line only counts once it is whole.
    """
    try:
        handle = os.open(folder / NAME, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        with os.fdopen(handle, "rb") as stream:
            lines = stream.read(2 * _FILE_BYTES).split(b"\n")[:-1]
    except OSError:
        return []
    found = []
    for index, line in enumerate(lines[after:], start=after):
        with suppress(ValueError, KeyError, TypeError, RecursionError):
            told = json.loads(line)
            data = {
                str(key)[:40]: value[:_MESSAGE_LENGTH] if isinstance(value, str) else value
                for key, value in told["data"].items()
                if isinstance(value, str | int | float)
            }
            json.dumps(data, allow_nan=False)
            if told["kind"] in KINDS and isinstance(told["message"], str):
                found.append(Note(index, told["kind"], told["message"][:_MESSAGE_LENGTH], data))
    return found
