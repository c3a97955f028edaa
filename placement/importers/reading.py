"""JSON and YAML of foreign files as importers need them, with the reason where one is damaged."""

from __future__ import annotations

import json
import re
from typing import Any

from ..errors import InvalidInput
from .source import Source

LONGEST_NAME = 1000


def values_of(source: Source) -> tuple[Any, ...]:
    """All documents that are mappings or lists. Raises InvalidInput where the text is damaged."""
    problem = source.parsed.problem
    if problem is not None:
        if source.text.lstrip()[:1] in ("{", "["):
            raise _not_json(source)
        raise source.refuse(problem.place, problem.found, problem.fix)
    if not source.documents:
        raise source.refuse("", "neither a mapping nor a list", "hand in the whole file")
    return source.documents


def _not_json(source: Source) -> InvalidInput:
    try:
        json.loads(source.text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        return source.refuse(place, f"not JSON: {error.msg}", "hand in the whole file")
    except (ValueError, RecursionError) as error:
        return source.refuse("", f"not usable JSON: {type(error).__name__}", "mend the text")
    return source.refuse("", "not usable JSON", "mend the text")


def places_of(source: Source, pattern: str) -> dict[str, str]:
    """`line n` where each name stands first: the first group of the pattern, in one pass."""
    found: dict[str, str] = {}
    line, at = 1, 0
    for match in re.finditer(pattern, source.text, re.M):
        line += source.text.count("\n", at, match.start(1))
        at = match.start(1)
        found.setdefault(match[1].strip(), f"line {line}")
    return found


def name_of(source: Source, value: Any, what: str) -> str:
    """A name that a file gives as text or as a whole number. Raises InvalidInput otherwise."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        raise source.refuse(what, f"{shown(value)} is no name", "give it as text")
    if len(value) > LONGEST_NAME or not value.strip().isprintable():
        raise source.refuse(what, f"{shown(value)} is no name", "give printable text")
    return value.strip()


def mapping_of(source: Source, value: Any, what: str) -> dict[str, Any]:
    """A mapping. Raises InvalidInput where it is something else."""
    if not isinstance(value, dict):
        raise source.refuse(what, f"{shown(value)} is no mapping", "hand in the whole file")
    return value


def list_of(source: Source, value: Any, what: str) -> list[Any]:
    """A list, empty where there is nothing. Raises InvalidInput where it is something else."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise source.refuse(what, f"{shown(value)} is no list", "hand in the whole file")
    return value


def shown(value: Any) -> str:
    """A value in a message: short, and nothing of what is inside mappings and lists."""
    if isinstance(value, dict):
        return f"a mapping of {len(value)}"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "..."
