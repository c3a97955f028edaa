"""What is written down of an embedded cluster that runs on without the process that started it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from ..agents import processes
from ..placement.files import write_text_atomically
from .embedded_node import EmbeddedNode
from .keeper_link import EmbeddedClusterError

_FORMAT: Final = "railweave.embedded/1"


class EmbeddedRecord(BaseModel):
    """A detached cluster.

    address, token_path: of Ray. keeper_pid, keeper_start_ticks: the process that holds it.
    directory: Ray's. started: starts of nodes so far. octets: last part of each node's address.
    """

    model_config = ConfigDict(frozen=True)

    format: Literal["railweave.embedded/1"] = _FORMAT
    address: str
    token_path: str
    port: int
    keeper_pid: int
    keeper_start_ticks: int
    directory: Path
    state_dir: Path
    durable: bool
    head: EmbeddedNode
    started: int
    subnet: str
    octets: dict[str, int]
    nodes: tuple[EmbeddedNode, ...]

    def write(self, path: str | os.PathLike[str]) -> None:
        """Put it in place of what is there."""
        write_text_atomically(path, self.model_dump_json(indent=1) + "\n")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> tuple[EmbeddedRecord, processes.Process] | None:
        """The record and its keeper; None where there is none, or where its keeper is gone.

        Raises EmbeddedClusterError for one that another version wrote while its keeper runs.
        """
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(data, dict) or data.get("format") != _FORMAT:
            return None
        pid, ticks = data.get("keeper_pid"), data.get("keeper_start_ticks")
        entry = processes.process(pid) if isinstance(pid, int) else None
        if entry is None or entry.start_ticks != ticks or entry.state == "Z":
            return None
        try:
            return cls.model_validate(data), entry
        except ValidationError as error:
            keys = ", ".join(".".join(map(str, one["loc"])) for one in error.errors())
            raise EmbeddedClusterError(
                f"{os.fspath(path)} was written by another version of Railweave ({keys}): end its "
                f"cluster with that version's `railweave down`, or by `kill {pid}`, which ends all "
                "that belongs to it"
            ) from error
