"""Records as JSON text, for the way between the daemon and its clients."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import TypeAdapter

Kind = TypeVar("Kind")


def encode(value: Any, kind: Any) -> str:
    """A record, or a container of records, of type `kind` as JSON text."""
    return TypeAdapter(kind).dump_json(value).decode()


def decode(text: str, kind: type[Kind]) -> Kind:
    """What `encode` was given. Raises pydantic's ValidationError when the text does not fit."""
    found: Kind = TypeAdapter(kind).validate_json(text)
    return found
