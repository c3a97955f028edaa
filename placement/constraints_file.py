"""The constraints file `railweave.constraints/1` (YAML or JSON)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import model_validator

from .constraints import Constraints
from .files import parse_text, read_data, validated, without_notes

FORMAT: Final = "railweave.constraints/1"


class _Record(Constraints):
    format: Literal["railweave.constraints/1"]

    @model_validator(mode="before")
    @classmethod
    def _drop_notes(cls, data: Any) -> Any:
        return without_notes(data)


def load_constraints(path: str | os.PathLike[str]) -> Constraints:
    """Read a constraints file. Raises InvalidInput naming each fault's place."""
    return parse_constraints(read_data(path), os.fspath(path))


def parse_constraints(data: Mapping[str, Any] | str, source: str = "constraints") -> Constraints:
    """Constraints from plain data or from text. Raises InvalidInput naming each fault's place."""
    plain = parse_text(data, source) if isinstance(data, str) else data
    record = validated(_Record, plain, source, FORMAT)
    return Constraints(**{name: getattr(record, name) for name in Constraints.model_fields})


def constraints_data(constraints: Constraints) -> dict[str, Any]:
    """Constraints as plain data in the file format: only what is asked for."""
    given = constraints.model_dump(mode="json", exclude_defaults=True)
    return {"format": FORMAT, **given}
