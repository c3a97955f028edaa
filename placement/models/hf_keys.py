"""Reading a `config.json` key by key: aliases, types, and all faults told together."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import InvalidInput, Problem
from ..explained import shown
from .sizes import LARGEST_SIZE

LARGEST_FILE_BYTES = 8 * 2**20
MOST_NOTES = 50


class Keys:
    """The keys of one object of a config: each is asked for by all the names it goes by.

    A key that is null counts as absent. Faults gather in `problems` (wrong types, what is missing)
    and oddities in `notes`; objects inside share both. A name with dots leads into objects.
    """

    def __init__(
        self,
        data: Mapping[str, Any],
        place: str = "",
        problems: list[Problem] | None = None,
        notes: list[str] | None = None,
    ) -> None:
        self.data = data
        self.place = place
        self.problems: list[Problem] = [] if problems is None else problems
        self.notes: list[str] = [] if notes is None else notes

    def has(self, *names: str) -> bool:
        """Whether one of the names is there and not null."""
        return any(self._value(name) is not None for name in names)

    def count(self, *names: str, least: int = 1, most: int = LARGEST_SIZE) -> int | None:
        """A whole number of `least` to `most`, None when absent or faulty."""
        name, value = self._first(names)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self._fault(name, value, "give a whole number")
            return None
        if not least <= value <= most:
            self._fault(name, value, f"give a number of {least} to {most}")
            return None
        return value

    def need(self, what: str, *names: str, most: int = LARGEST_SIZE) -> int:
        """A whole number of 1 to `most`; when absent that is a fault, and 1 stands in for it."""
        before = len(self.problems)
        found = self.count(*names, most=most)
        if found is None and len(self.problems) == before:
            others = f" (or {', '.join(names[1:4])})" if len(names) > 1 else ""
            fix = f"add {what}{others}"
            self.problems.append(Problem(self._at(names[0]), "missing", fix))
        return found or 1

    def number(self, *names: str) -> float | None:
        """A number above 0."""
        name, value = self._first(names)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._fault(name, value, "give a number")
            return None
        if not 0 < value <= LARGEST_SIZE:
            self._fault(name, value, "give a number above 0")
            return None
        return float(value)

    def flag(self, *names: str, default: bool) -> bool:
        """true or false."""
        name, value = self._first(names)
        if value is None:
            return default
        if not isinstance(value, bool):
            self._fault(name, value, "give true or false")
            return default
        return value

    def text(self, *names: str) -> str | None:
        """Text, such as the name of a kind."""
        name, value = self._first(names)
        if value is not None and not isinstance(value, str):
            self._fault(name, value, "give text")
            return None
        return value

    def items(self, *names: str) -> list[Any] | None:
        """A list, of anything."""
        name, value = self._first(names)
        if value is not None and not isinstance(value, list):
            self._fault(name, value, "give a list")
            return None
        return value

    def indices(self, name: str) -> set[int]:
        """The layers that a list names; none when it is absent."""
        found = self.items(name) or []
        if not all(isinstance(entry, int) for entry in found):
            self.fault(name, "entries that are no layers", "give indices of layers")
            return set()
        return set(found)

    def section(self, *names: str) -> Keys | None:
        """The object under a name."""
        name, value = self._first(names)
        if value is None:
            return None
        if not isinstance(value, dict):
            self._fault(name, value, "give an object")
            return None
        return Keys(value, self._at(name), self.problems, self.notes)

    def fault(self, name: str, found: str, fix: str) -> None:
        """Adds a fault of a key."""
        self.problems.append(Problem(self._at(name), found, fix))

    def note(self, text: str) -> None:
        """Adds an oddity that does not stop the reading."""
        if text not in self.notes and len(self.notes) < MOST_NOTES:
            self.notes.append(text)

    def raise_faults(self, source: str) -> None:
        """Raises InvalidInput with all faults, if there are any."""
        if self.problems:
            raise InvalidInput(source, self.problems)

    def _fault(self, name: str, value: Any, fix: str) -> None:
        self.problems.append(Problem(self._at(name), f"found {shown(value)}", fix))

    def _at(self, name: str) -> str:
        return f"{self.place}.{name}" if self.place else name

    def _value(self, name: str) -> Any:
        found: Any = self.data
        for part in name.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        return found

    def _first(self, names: tuple[str, ...]) -> tuple[str, Any]:
        given = [(name, value) for name in names if (value := self._value(name)) is not None]
        if not given:
            return names[0], None
        name, value = given[0]
        for other, unlike in given[1:]:
            if unlike != value and type(unlike) is type(value):
                self.note(f"{self._at(name)} {shown(value)} is used, not {other} {shown(unlike)}")
        return name, value


def read_config(source: str | os.PathLike[str]) -> Keys:
    """The keys of a config.json: of that file, or of the one in that folder.

    Raises InvalidInput when it cannot be read, is too large, or is not a JSON object (with the
    line). Of a key given twice the last counts, as in every reader of JSON, and a note says so.
    """
    path = Path(source)
    if path.is_dir():
        path /= "config.json"
    try:
        with path.open("rb") as stream:
            raw = stream.read(LARGEST_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        found = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        fix = "give the path of a config.json, or of its folder"
        raise InvalidInput(str(path), [Problem("", found, fix)]) from error
    if len(raw) > LARGEST_FILE_BYTES:
        found = f"larger than {LARGEST_FILE_BYTES} bytes"
        raise InvalidInput(str(path), [Problem("", found, "give a model's config.json")])
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        fault = Problem(f"byte {error.start}", "not UTF-8 text", "give a model's config.json")
        raise InvalidInput(str(path), [fault]) from error
    return parse_config(text, str(path))


def parse_config(text: str, source: str) -> Keys:
    """The keys of a config's text; see `read_config`."""
    twice: list[str] = []

    def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            counts = Counter(name for name, _ in pairs)
            twice.extend(name for name, times in counts.most_common(5) if times > 1)
        return found

    try:
        data = json.loads(text, object_pairs_hook=object_of)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        fault = Problem(place, f"not JSON: {error.msg}", "mend the text there")
        raise InvalidInput(source, [fault]) from error
    except (ValueError, RecursionError) as error:
        fault = Problem("", f"not usable JSON: {str(error)[:100]}", "give a model's config.json")
        raise InvalidInput(source, [fault]) from error
    if not isinstance(data, dict):
        found = f"holds a {type(data).__name__}, not an object"
        raise InvalidInput(source, [Problem("", found, "give a model's config.json")])
    keys = Keys(data)
    for name in twice:
        keys.note(f"{shown(name)} is given twice; the last one counts")
    return keys
