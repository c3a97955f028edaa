"""Damage done to files: what editors, cut transfers, odd tools and hostile hands do to text."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any
from xml.etree.ElementTree import Element, ParseError, fromstring, tostring

import yaml

_NUMBERS = (
    "-1",
    "0",
    "-0.0",
    "1.5",
    "NaN",
    "Infinity",
    "1e999",
    "1e-320",
    "4294967296",
    "9223372036854775808",
    "99999999999999999999999999",
    "9" * 5000,
    "0x1f",
    "007",
    "٣",
    "",
)
_WORDS = (
    "\u0000",
    "é",
    "\u202e",
    "\u2028",
    "名前",
    "\ud7ff",
    "x" * 3000,
    "a[0-9",
    "n[1-99999999]",
    "[]",
    "{}",
    "<a/>",
    "&x;",
    "null",
    "~",
    "true",
    "'",
    '"',
    "\\",
    "#",
    ": ",
    "\t",
    " ",
    "",
    "..",
    "/",
    "%s",
    "!!python/none",
    "*a",
    "2001-01-01",
)
_VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    10**30,
    1.5,
    float("nan"),
    float("inf"),
    "",
    " ",
    "text",
    "名前",
    [],
    {},
    [None],
    [[]],
    {"": None},
    [{}],
    "n[1-99999999]",
    "x" * 3000,
)


def damaged(text: str, other: str, rng: random.Random) -> bytes:
    """The text after one to four mutations; `other` is a file of another format to splice in."""
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        change = rng.choice(_CHANGES)
        text = change(text, rng) if change is not _spliced else _spliced(text, rng, other)
    data = text.encode("utf-8", "surrogatepass")
    return _cut(data, rng) if rng.random() < 0.15 else data


def _cut(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data) + 1)
    how = rng.randrange(4)
    if how == 0:
        return data[:start]
    if how == 1:
        return data[:start] + data[start + rng.randrange(1, 40) :]
    if how == 2:
        return data[:start] + bytes(rng.randrange(256) for _ in range(3)) + data[start:]
    return data[:start] + b"\0" + data[start:]


def _lines(text: str, rng: random.Random) -> str:
    lines = text.split("\n")
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    how = rng.randrange(5)
    if how == 0:
        del lines[a : a + rng.choice((1, 1, 3))]
    elif how == 1:
        lines[a:a] = lines[b : b + rng.choice((1, 5))]
    elif how == 2:
        lines[a], lines[b] = lines[b], lines[a]
    elif how == 3:
        lines = lines[: a + 1]
    else:
        lines[a] = rng.choice((" ", "\t", "  ")) + lines[a]
    return "\n".join(lines)


def _replaced(pattern: str, choices: tuple[str, ...]) -> Callable[[str, random.Random], str]:
    def change(text: str, rng: random.Random) -> str:
        found = list(re.finditer(pattern, text))
        if not found:
            return text
        match = rng.choice(found)
        return text[: match.start()] + rng.choice(choices) + text[match.end() :]

    return change


def _word_of_the_file(text: str, rng: random.Random) -> str:
    found = list(re.finditer(r"[\w.:-]+", text))
    if not found:
        return text
    match, new = rng.choice(found), rng.choice(found)[0]
    return text[: match.start()] + new + text[match.end() :]


def _spliced(text: str, rng: random.Random, other: str = "") -> str:
    mine, theirs = text.split("\n"), other.split("\n")
    a, b = rng.randrange(len(mine) + 1), rng.randrange(len(theirs) + 1)
    return "\n".join(mine[:a] + theirs[b:] + (mine[a:] if rng.random() < 0.5 else []))


def _structure(text: str, rng: random.Random) -> str:
    """A JSON, YAML or XML file with one place changed; other text by its lines."""
    start = text.lstrip()[:1]
    try:
        if start == "<":
            return _xml(text, rng)
        if start in ("{", "["):
            value = [json.loads(text)]
            _change(value, rng)
            return json.dumps(value[0] if value else None, indent=1)
        documents = list(yaml.safe_load_all(text))
        if not any(isinstance(one, dict | list) for one in documents):
            return _lines(text, rng)
        _change(documents, rng)
        return yaml.safe_dump_all(documents, sort_keys=False)
    except (ValueError, yaml.YAMLError, ParseError, RecursionError):
        return _lines(text, rng)


def _change(root: Any, rng: random.Random) -> None:
    """One place at any depth: taken out, doubled, given another value, or moved elsewhere."""
    places: list[tuple[Any, Any]] = []
    waiting = [root]
    while waiting:
        one = waiting.pop()
        inside = one.items() if isinstance(one, dict) else enumerate(one)
        for key, value in inside:
            places.append((one, key))
            if isinstance(value, dict | list):
                waiting.append(value)
    if not places:
        return
    holder, key = rng.choice(places)
    value = holder[key]
    how = rng.randrange(6)
    if how == 0:
        del holder[key]
    elif how == 1 and isinstance(holder, list):
        holder.append(value)
    elif how == 2 and isinstance(holder, dict):
        del holder[key]
        holder[rng.choice((*_WORDS, key * 2 if isinstance(key, str) else 7))] = value
    elif how == 3:
        there, where = rng.choice(places)
        holder[key] = json.loads(json.dumps(there[where], default=str)) if where in there else None
    elif how == 4:
        holder[key] = rng.choice(([value], {"value": value}, str(value)))
    else:
        holder[key] = rng.choice(_VALUES)


def _xml(text: str, rng: random.Random) -> str:
    root = fromstring(text)
    elements = list(root.iter())
    parent = rng.choice([one for one in elements if len(one)] or [root])
    one: Element = rng.choice(elements)
    how = rng.randrange(6)
    if how == 0 and len(parent):
        parent.remove(rng.choice(list(parent)))
    elif how == 1 and len(parent):
        parent.append(rng.choice(list(parent)))
    elif how == 2:
        one.tag = rng.choice(elements).tag
    elif how == 3 and one.attrib:
        del one.attrib[rng.choice(list(one.attrib))]
    elif how == 4 and len(parent):
        moved = rng.choice(list(parent))
        parent.remove(moved)
        root.append(moved)
    elif one.attrib:
        name = rng.choice(list(one.attrib))
        other = rng.choice([each for each in elements if each.attrib]).attrib
        choices = (rng.choice(list(other.values())), rng.choice(_NUMBERS), rng.choice(_WORDS[1:]))
        one.set(name, rng.choice(choices))
    return tostring(root, encoding="unicode")


_CHANGES: tuple[Callable[..., str], ...] = (
    _lines,
    _lines,
    _replaced(r"\d+", _NUMBERS),
    _replaced(r"\d+(\.\d+)?", _NUMBERS),
    _replaced(r"[\w.-]+", _WORDS),
    _replaced(r"[^\w\s]", _WORDS),
    _replaced(r"\s+", _WORDS),
    _word_of_the_file,
    _structure,
    _structure,
    _structure,
    _structure,
    _spliced,
)
