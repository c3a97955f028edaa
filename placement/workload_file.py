"""The workload file `railweave.workload/1` (YAML or JSON)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import model_validator

from .files import dump, parse_text, read_data, validated, without_notes
from .workload import Workload

FORMAT: Final = "railweave.workload/1"


class _Record(Workload):
    format: Literal["railweave.workload/1"]

    @model_validator(mode="before")
    @classmethod
    def _drop_notes(cls, data: Any) -> Any:
        return without_notes(data)


def load_workload(path: str | os.PathLike[str]) -> Workload:
    """Read a workload file. Raises InvalidInput naming each fault's place."""
    return parse_workload(read_data(path), os.fspath(path))


def parse_workload(data: Mapping[str, Any] | str, source: str = "workload") -> Workload:
    """A workload from plain data or from text. Raises InvalidInput naming each fault's place."""
    plain = parse_text(data, source) if isinstance(data, str) else data
    record = validated(_Record, plain, source, FORMAT)
    return Workload(**{name: getattr(record, name) for name in Workload.model_fields})


def workload_data(workload: Workload) -> dict[str, Any]:
    """A workload as plain data in the file format."""
    return {"format": FORMAT, **workload.model_dump(mode="json", exclude_none=True)}


def save_workload(workload: Workload, path: str | os.PathLike[str]) -> None:
    """Write the workload file: YAML when the name ends in .yaml or .yml, JSON otherwise."""
    dump(workload_data(workload), path)
