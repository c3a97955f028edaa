"""The links inside a node: what joins each pair of its devices, by name or by number."""

from __future__ import annotations

import difflib
import re
from functools import cached_property
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from .errors import InvalidInput, Problem
from .quantities import LARGEST, Name, Positive

SELF: Final = "X"
"""The entry of a device with itself, as `nvidia-smi topo -m` prints it."""
ASSUMED_BYTES_PER_S: Final[dict[str, float]] = {
    "NV": 25e9,
    "PIX": 24e9,
    "PXB": 22e9,
    "PHB": 18e9,
    "NODE": 14e9,
    "SYS": 10e9,
}
"""One NVLink of generations 2 to 4 (25 GB/s a direction), and round figures for paths over PCIe 4.0
x16, whose order is that of `nvidia-smi topo -m`; files may give their own."""
MOST_LINKED_DEVICES: Final = 64
_BONDED = re.compile(r"NV([1-9][0-9]?)")


def _entry(value: Any) -> Any:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LARGEST:
        return float(value)
    raise ValueError("a name such as NV2 or SYS, or bytes/s")


Entry = Annotated[float | str, BeforeValidator(_entry)]


class NodeLinks(BaseModel):
    """How fast each pair of a node's devices is joined.

    matrix: `[a][b]`, a name (NV#, PIX, PXB, PHB, NODE, SYS, or one of `bandwidth`) or bytes/s in
        one direction; the diagonal is X or 0.
    bandwidth: bytes/s by name; `NV` is that of one NVLink, of which NV# has #.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    matrix: Annotated[tuple[tuple[Entry, ...], ...], Field(min_length=1)]
    bandwidth: dict[Name, Positive] = {}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        problems = self._shape_problems() or self._entry_problems() or self._symmetry_problems()
        if problems:
            raise InvalidInput("links", problems)
        return self

    @property
    def devices(self) -> int:
        """How many devices the matrix joins."""
        return len(self.matrix)

    @cached_property
    def bytes_per_s(self) -> tuple[tuple[float, ...], ...]:
        """`[a][b]` in bytes/s and one direction; 0 on the diagonal."""
        return tuple(
            tuple(0.0 if a == b else self._rate(entry) for b, entry in enumerate(row))
            for a, row in enumerate(self.matrix)
        )

    def _rate(self, entry: float | str) -> float:
        """Bytes/s of an entry; 0 when its name is not known."""
        if not isinstance(entry, str):
            return entry
        if entry in self.bandwidth:
            return self.bandwidth[entry]
        bonded = _BONDED.fullmatch(entry)
        if bonded:
            return int(bonded[1]) * self.bandwidth.get("NV", ASSUMED_BYTES_PER_S["NV"])
        return 0.0 if entry == "NV" else ASSUMED_BYTES_PER_S.get(entry, 0.0)

    def _shape_problems(self) -> list[Problem]:
        size = self.devices
        if size > MOST_LINKED_DEVICES:
            fix = f"describe nodes of at most {MOST_LINKED_DEVICES}, or leave their links out"
            return [Problem("matrix", f"{size} devices", fix)]
        return [
            Problem(
                f"matrix[{a}]",
                f"{len(row)} entries in a matrix of {size} rows",
                "give a square matrix: one row and one column a device",
            )
            for a, row in enumerate(self.matrix)
            if len(row) != size
        ]

    def _entry_problems(self) -> list[Problem]:
        problems = []
        known = sorted({*self.bandwidth, *ASSUMED_BYTES_PER_S} - {"NV"})
        for a, row in enumerate(self.matrix):
            for b, entry in enumerate(row):
                place = f"matrix[{a}][{b}]"
                if a == b:
                    if entry not in (SELF, 0):
                        fix = f"write {SELF} or 0 there"
                        problems.append(Problem(place, f"device {a} with itself: {entry!r}", fix))
                elif self._rate(entry) <= 0:
                    fix = "give bytes/s above 0; what has no link of its own goes over SYS"
                    if isinstance(entry, str):
                        close = difflib.get_close_matches(entry, known, n=1)
                        hint = f"did you mean {close[0]!r}? " if close else ""
                        fix = f"{hint}give its bytes/s in bandwidth, or use NV#, {', '.join(known)}"
                    problems.append(Problem(place, f"no bandwidth for {entry!r}", fix))
        return problems

    def _symmetry_problems(self) -> list[Problem]:
        rates = self.bytes_per_s
        return [
            Problem(
                f"matrix[{b}][{a}]",
                f"{self.matrix[b][a]!r} from {b} to {a}, but {self.matrix[a][b]!r} from {a} to {b}",
                "give a symmetric matrix",
            )
            for a in range(self.devices)
            for b in range(a + 1, self.devices)
            if rates[a][b] != rates[b][a]
        ]
