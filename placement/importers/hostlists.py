"""Slurm's lists of names: `node[01-04,7],login` written out, and folded again."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import product

MOST_NAMES = 2**18
"""Names that one list, and one file, may stand for: well above the largest cluster there is."""
_SHOWN = 60
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_DIGITS = "0123456789"


class HostlistError(ValueError):
    """A list that cannot be written out; says what is wrong with it."""


def expanded(text: str, most: int = MOST_NAMES) -> list[str]:
    """The names that a list stands for, in its order; names given twice stay twice.

    Brackets hold numbers and ranges, whose leading zeros are kept; a name may have several. Raises
    HostlistError for a list that is damaged or stands for more than `most` names.
    """
    names: list[str] = []
    for item in _items(text):
        parts = _parts(item)
        count = _count(parts, item)
        if len(names) + count > most:
            found = f"{_short(item)} stands for {count} names"
            raise HostlistError(f"{found}; at most {most} are read")
        choices = [
            [name for piece in part for name in _numbers(piece)]
            if isinstance(part, list)
            else [part]
            for part in parts
        ]
        names += ["".join(each) for each in product(*choices)]
    return names


def counted(text: str) -> int:
    """How many names a list stands for. Raises HostlistError for a list that is damaged."""
    return sum(_count(_parts(item), item) for item in _items(text))


def folded(names: Iterable[str]) -> str:
    """A list that stands for the names: neighbours that differ in their last number share one."""
    groups: dict[tuple[str, int], list[int]] = {}
    order: list[tuple[str, tuple[str, int] | None]] = []
    parted = [(name, head, name[len(head) :]) for name in names for head in [name.rstrip(_DIGITS)]]
    # Numbers with leading zeros have a width, and so have longer ones beside them.
    padded = {(head, len(tail)) for _, head, tail in parted if tail[:1] == "0" and len(tail) > 1}
    for name, head, tail in parted:
        if not tail or len(tail) > 18 or "[" in head:
            order.append((name, None))
            continue
        key = (head, len(tail))
        if key not in padded:
            key = (head, 0)
        if key not in groups:
            order.append((name, key))
        groups.setdefault(key, []).append(int(tail))
    shown = [
        name if key is None else f"{key[0]}{_ranges(sorted(set(groups[key])), key[1])}"
        for name, key in order
    ]
    return ",".join(shown)


def _items(text: str) -> list[str]:
    """The parts between the commas that stand outside of brackets."""
    items, start, inside = [], 0, False
    for position, letter in enumerate(text):
        if letter == "[":
            if inside:
                raise HostlistError(f"{_short(text)} has a bracket within a bracket")
            inside = True
        elif letter == "]":
            if not inside:
                raise HostlistError(f"{_short(text)} closes a bracket that was not opened")
            inside = False
        elif letter == "," and not inside:
            items.append(text[start:position].strip())
            start = position + 1
    if inside:
        raise HostlistError(f"{_short(text)} has a bracket that is not closed")
    items.append(text[start:].strip())
    if len(items) > 1 and not items[-1]:
        items.pop()
    if not all(items):
        raise HostlistError(f"{_short(text)} has an empty name")
    for item in items:
        if any(letter.isspace() for letter in item):
            raise HostlistError(f"{_short(item)} has a blank in a name")
    return items


def _parts(item: str) -> list[str | list[tuple[str, str]]]:
    """Plain text and, for each bracket, its numbers and ranges."""
    parts: list[str | list[tuple[str, str]]] = []
    rest = item
    while "[" in rest:
        before, _, rest = rest.partition("[")
        inner, _, rest = rest.partition("]")
        pieces = []
        for piece in inner.split(","):
            match = _RANGE.fullmatch(piece.strip())
            if match is None:
                raise HostlistError(f"{_short(item)} has {piece.strip()[:20]!r} in a bracket")
            pieces.append((match[1], match[2] or match[1]))
        parts += [before, pieces]
    return [*parts, rest] if rest else parts


def _count(parts: list[str | list[tuple[str, str]]], item: str) -> int:
    count = 1
    for part in parts:
        count *= sum(_size(piece, item) for piece in part) if isinstance(part, list) else 1
    return count


def _size(piece: tuple[str, str], item: str) -> int:
    low, high = piece
    if len(low) > 18 or len(high) > 18:
        raise HostlistError(f"{_short(item)} has a number of more than 18 digits")
    if int(high) < int(low):
        raise HostlistError(f"{_short(item)} has a range that goes down, {low}-{high}")
    return int(high) - int(low) + 1


def _numbers(piece: tuple[str, str]) -> list[str]:
    low, high = piece
    return [str(number).zfill(len(low)) for number in range(int(low), int(high) + 1)]


def _ranges(numbers: list[int], width: int) -> str:
    if len(numbers) == 1:
        return str(numbers[0]).zfill(width)
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    texts = [
        str(a).zfill(width) if a == b else f"{str(a).zfill(width)}-{str(b).zfill(width)}"
        for a, b in runs
    ]
    return f"[{','.join(texts)}]"


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
