"""The groups of a PCG as arrays, and the sequence of groups that makes them when asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, pairwise
from typing import Any, Final, overload

import numpy as np
import numpy.typing as npt

from .group import Algorithm, Group, Kind, Op, automatic

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

OPS: Final = tuple(Op)
ALGORITHMS: Final = tuple(Algorithm)
KINDS: Final = tuple(Kind)
_UNKNOWN: Final = -1
_FIELDS: Final = tuple(Group.model_fields)
_PLAIN: Final[dict[type, type]] = {str: str, tuple: list, Op: str, Algorithm: str, Kind: str}


@dataclass(frozen=True)
class Names:
    """Names of groups in a row: a template, and the numbers of each."""

    template: str
    numbers: Ints

    def __iter__(self) -> Iterator[str]:
        return (self.template.format(*row) for row in self.numbers.tolist())


@dataclass(frozen=True, eq=False)
class Chosen:
    """Names of some groups of a table."""

    table: GroupTable
    places: Ints

    def __iter__(self) -> Iterator[str]:
        names = self.table.names
        return (names[place] for place in self.places.tolist())


@dataclass(frozen=True, eq=False)
class GroupTable:
    """Groups as arrays, an entry a group.

    op, algorithm, kind: places in OPS, ALGORITHMS and KINDS; kind is -1 where it is not known.
    bytes; count, overlap: NaN where they are not known. Ranks of group g are
    `rank[start[g]:start[g + 1]]`.
    """

    op: Ints
    algorithm: Ints
    kind: Ints
    bytes: Floats
    count: Floats
    overlap: Floats
    start: Ints
    rank: Ints
    _names: tuple[Iterable[str], ...] = field(repr=False)

    @classmethod
    def of(cls, groups: Sequence[Group]) -> GroupTable:
        """The arrays of groups."""
        sizes = np.fromiter((len(g.ranks) for g in groups), dtype=np.int64, count=len(groups))
        ops = {op: place for place, op in enumerate(OPS)}
        algorithms = {algorithm: place for place, algorithm in enumerate(ALGORITHMS)}
        kinds: dict[Kind | None, int] = {kind: place for place, kind in enumerate(KINDS)}
        kinds[None] = _UNKNOWN
        return cls(
            op=np.array([ops[g.op] for g in groups], dtype=np.int64),
            algorithm=np.array([algorithms[g.algorithm] for g in groups], dtype=np.int64),
            kind=np.array([kinds[g.kind] for g in groups], dtype=np.int64),
            bytes=np.array([g.bytes for g in groups], dtype=np.float64),
            count=np.array([np.nan if g.count is None else g.count for g in groups]),
            overlap=np.array([np.nan if g.overlap is None else g.overlap for g in groups]),
            start=np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)]),
            rank=np.fromiter(
                chain.from_iterable(g.ranks for g in groups), dtype=np.int64, count=int(sizes.sum())
            ),
            _names=([g.name for g in groups],),
        )

    @classmethod
    def joined(cls, tables: Sequence[GroupTable]) -> GroupTable:
        """The groups of several tables, one after the other."""
        if not tables:
            return cls.of(())
        sizes = np.concatenate([table.size for table in tables])
        return cls(
            op=np.concatenate([table.op for table in tables]),
            algorithm=np.concatenate([table.algorithm for table in tables]),
            kind=np.concatenate([table.kind for table in tables]),
            bytes=np.concatenate([table.bytes for table in tables]),
            count=np.concatenate([table.count for table in tables]),
            overlap=np.concatenate([table.overlap for table in tables]),
            start=np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)]),
            rank=np.concatenate([table.rank for table in tables]),
            _names=tuple(chain.from_iterable(table._names for table in tables)),
        )

    @classmethod
    def alike(
        cls,
        names: Names,
        kind: Kind,
        op: Op,
        ranks: Ints,
        size: Floats,
        count: Floats,
        overlap: Floats,
    ) -> GroupTable:
        """Groups of one kind and operation, a row of `ranks` each."""
        groups, members = ranks.shape
        return cls(
            op=np.full(groups, OPS.index(op)),
            algorithm=np.full(groups, ALGORITHMS.index(Algorithm.AUTO)),
            kind=np.full(groups, KINDS.index(kind)),
            bytes=size,
            count=count,
            overlap=overlap,
            start=np.arange(groups + 1) * members,
            rank=ranks.ravel(),
            _names=(names,),
        )

    def __len__(self) -> int:
        return len(self.op)

    @cached_property
    def size(self) -> Ints:
        """Ranks of each group."""
        return np.diff(self.start)

    @cached_property
    def resolved_algorithm(self) -> Ints:
        """The algorithm with AUTO replaced by what it stands for in each operation."""
        meant = np.array([ALGORITHMS.index(automatic(op)) for op in OPS], dtype=np.int64)
        auto = self.algorithm == ALGORITHMS.index(Algorithm.AUTO)
        return np.where(auto, meant[self.op], self.algorithm)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The name of each group."""
        return tuple(chain.from_iterable(self._names))

    def is_op(self, *ops: Op) -> npt.NDArray[np.bool_]:
        """Which groups do one of these operations."""
        return self._is_one_of(self.op, [OPS.index(op) for op in ops])

    def is_algorithm(self, algorithm: Algorithm) -> npt.NDArray[np.bool_]:
        """Which groups use this algorithm, or leave it open and mean it."""
        return self._is_one_of(self.resolved_algorithm, [ALGORITHMS.index(algorithm)])

    @staticmethod
    def _is_one_of(values: Ints, wanted: list[int]) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = np.isin(values, wanted)
        return found

    def ranks(self) -> list[tuple[int, ...]]:
        """The ranks of each group."""
        members = self.rank.tolist()
        return [tuple(members[a:b]) for a, b in pairwise(self.start.tolist())]

    def taken(self, places: Ints) -> GroupTable:
        """The groups at these places, in this order."""
        sizes = self.size[places]
        ends = np.cumsum(sizes)
        shift = np.repeat(self.start[places] - (ends - sizes), sizes)
        return GroupTable(
            op=self.op[places],
            algorithm=self.algorithm[places],
            kind=self.kind[places],
            bytes=self.bytes[places],
            count=self.count[places],
            overlap=self.overlap[places],
            start=np.concatenate([np.zeros(1, dtype=np.int64), ends]),
            rank=self.rank[np.arange(len(shift)) + shift],
            _names=(Chosen(self, places),),
        )

    def groups(self) -> tuple[Group, ...]:
        """The groups as objects."""
        return tuple(
            Group.model_construct(**dict(zip(_FIELDS, row, strict=True))) for row in self._rows()
        )

    def to_data(self) -> list[dict[str, Any]]:
        """The groups as plain data of the file format, without what is not known."""
        return [
            {
                key: value if isinstance(value, float) else _PLAIN[type(value)](value)
                for key, value in zip(_FIELDS, row, strict=True)
                if value is not None
            }
            for row in self._rows()
        ]

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        """The fields of each group, in the order of _FIELDS."""
        return zip(
            self.names,
            (OPS[op] for op in self.op.tolist()),
            self.ranks(),
            self.bytes.tolist(),
            (ALGORITHMS[algorithm] for algorithm in self.algorithm.tolist()),
            (None if kind == _UNKNOWN else KINDS[kind] for kind in self.kind.tolist()),
            _known(self.count),
            _known(self.overlap),
            strict=True,
        )


def _known(values: Floats) -> list[float | None]:
    return [None if value != value else value for value in values.tolist()]


class GroupList(Sequence[Group]):
    """The groups of a PCG, equal to a tuple of them; either form is made from the other once."""

    def __init__(self, groups: GroupTable | Iterable[Group]) -> None:
        self._table: GroupTable | None = None
        self._groups: tuple[Group, ...] | None = None
        if isinstance(groups, GroupTable):
            self._table = groups
        else:
            self._groups = tuple(groups)

    @property
    def table(self) -> GroupTable:
        """The groups as arrays."""
        if self._table is None:
            self._table = GroupTable.of(self._all)
        return self._table

    @property
    def _all(self) -> tuple[Group, ...]:
        if self._groups is None:
            assert self._table is not None  # one of the two is always there
            self._groups = self._table.groups()
        return self._groups

    def __len__(self) -> int:
        return len(self._table if self._groups is None and self._table is not None else self._all)

    @overload
    def __getitem__(self, place: int) -> Group: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Group, ...]: ...
    def __getitem__(self, place: int | slice) -> Group | tuple[Group, ...]:
        return self._all[place]

    def __iter__(self) -> Iterator[Group]:
        return iter(self._all)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, GroupList):
            return self is other or self._all == other._all
        return self._all == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._all)

    def __add__(self, other: Any) -> tuple[Group, ...]:
        return self._all + tuple(other)

    def __repr__(self) -> str:
        return repr(self._all)
