"""JSON and YAML text of foreign files: all its documents, or why there are none."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import yaml

from ..errors import Problem
from ..files import PlainLoader

MOST_VALUES = 20_000_000
"""Values in all documents together, with what aliases repeat counted each time."""


@dataclass(frozen=True)
class Documents:
    """The values of a text in their order; `problem` where it is neither JSON nor YAML."""

    values: tuple[Any, ...] = ()
    problem: Problem | None = None


def documents(text: str) -> Documents:
    """Every document of JSON or YAML text. Numbers and words mean what YAML 1.2 says."""
    try:
        values: tuple[Any, ...] = (json.loads(text),)
    except (ValueError, RecursionError):
        values = ()
    try:
        if not values:
            values = tuple(yaml.load_all(text, Loader=PlainLoader))
        if _expanded(list(values), {}) > MOST_VALUES:
            found = f"more than {MOST_VALUES} values once its aliases are written out"
            return Documents((), Problem("", found, "write it without nested aliases"))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1} column {mark.column + 1}" if mark else ""
        found = f"not YAML: {getattr(error, 'problem', None) or type(error).__name__}"
        return Documents((), Problem(place, found, "mend the text there"))
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        # The constructors of YAML's own types raise whatever they trip over.
        found = f"not YAML: {type(error).__name__} {str(error)[:200]}"
        return Documents((), Problem("", found, "mend the text"))
    return Documents(values)


def _expanded(value: Any, known: dict[int, int]) -> int:
    """Values below this one, itself included; raises RecursionError where it holds itself."""
    if not isinstance(value, dict | list):
        return 1
    size = known.get(id(value))
    if size is None:
        children = value.values() if isinstance(value, dict) else value
        size = known[id(value)] = 1 + sum(_expanded(child, known) for child in children)
    return size
