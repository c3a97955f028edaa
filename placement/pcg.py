"""The parallel computation graph `railweave.pcg/1`: ranks and the groups they communicate in."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    WrapSerializer,
    model_validator,
)

from .errors import InvalidInput, Problem
from .explained import Explained
from .files import Notes, dump, parse_text, read_data, validated, without_notes
from .group import ALLOWED, Algorithm, Group, Kind, Op
from .group_table import GroupList, GroupTable
from .quantities import Index, Name, RankCount

__all__ = ["FORMAT", "PCG", "Algorithm", "Group", "GroupTable", "Kind", "Op", "Requirement"]

FORMAT: Final = "railweave.pcg/1"


class Requirement(BaseModel):
    """Ranks that need one accelerator kind."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ranks: tuple[Index, ...] = Field(min_length=1)
    accelerator: Name


def _plain(groups: Any, serialize: SerializerFunctionWrapHandler) -> Any:
    return serialize(tuple(groups))


class PCG(Explained):
    """Ranks 0..world_size-1 and their communication groups. Build it with `load` or `parse`.

    groups: a sequence of `Group`; one that `build_pcg` made holds them as arrays until they are
    asked for.
    """

    format: Literal["railweave.pcg/1"] = FORMAT
    world_size: RankCount
    groups: Annotated[
        tuple[Annotated[Group, Notes], ...], AfterValidator(GroupList), WrapSerializer(_plain)
    ]
    requires: tuple[Annotated[Requirement, Notes], ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _drop_notes(cls, data: Any) -> Any:
        return without_notes(data)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        problems = [*_group_problems(self), *_requirement_problems(self)]
        if problems:
            raise InvalidInput("PCG", problems)
        return self

    @classmethod
    def folded(cls, world_size: int, table: GroupTable) -> PCG:
        """A PCG of groups that are right by construction; they are not checked again."""
        groups: Any = GroupList(table)
        return cls.model_construct(format=FORMAT, world_size=world_size, groups=groups, requires=())

    @property
    def table(self) -> GroupTable:
        """The groups as arrays."""
        groups: Any = self.groups
        return groups.table if isinstance(groups, GroupList) else GroupTable.of(self.groups)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a PCG file. Raises InvalidInput naming each fault's place."""
        return validated(cls, read_data(path), os.fspath(path), FORMAT)

    @classmethod
    def parse(cls, data: Mapping[str, Any] | str, source: str = "pcg") -> Self:
        """A PCG from plain data or from text. Raises InvalidInput naming each fault's place."""
        plain = parse_text(data, source) if isinstance(data, str) else data
        return validated(cls, plain, source, FORMAT)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the PCG file."""
        dump(self.to_data(), path)

    def to_data(self) -> dict[str, Any]:
        """The PCG as plain data in the file format."""
        data: dict[str, Any] = {
            "format": self.format,
            "world_size": self.world_size,
            "groups": self.table.to_data(),
        }
        if self.requires:
            data["requires"] = [need.model_dump(mode="json") for need in self.requires]
        return data

    def required_accelerators(self) -> dict[int, str]:
        """Accelerator kind by rank, for the ranks that need a certain one."""
        return {rank: need.accelerator for need in self.requires for rank in need.ranks}


def _rank_problems(ranks: tuple[int, ...], place: str, world_size: int) -> list[Problem]:
    problems = []
    seen: set[int] = set()
    for position, rank in enumerate(ranks):
        where = f"{place}.ranks[{position}]"
        if not 0 <= rank < world_size:
            found = f"rank {rank} does not exist"
            problems.append(
                Problem(where, found, f"ranks are 0 to {world_size - 1} (world_size {world_size})")
            )
        elif rank in seen:
            problems.append(Problem(where, f"rank {rank} given twice", "list it once"))
        seen.add(rank)
    return problems


def _group_problems(pcg: PCG) -> list[Problem]:
    problems: list[Problem] = []
    names: dict[str, int] = {}
    for index, group in enumerate(pcg.groups):
        place = f"groups[{index}]"
        if group.name in names:
            found = f"duplicate name {group.name!r}, also groups[{names[group.name]}]"
            problems.append(Problem(f"{place}.name", found, "rename one of them"))
        names.setdefault(group.name, index)
        if (
            min(group.ranks) < 0
            or max(group.ranks) >= pcg.world_size
            or len(set(group.ranks)) < len(group.ranks)
        ):
            problems += _rank_problems(group.ranks, place, pcg.world_size)
        if group.op is Op.SEND_RECV and len(group.ranks) != 2:
            found = f"send_recv names {len(group.ranks)} ranks"
            problems.append(Problem(f"{place}.ranks", found, "name the sender and the receiver"))
        if group.algorithm not in ALLOWED[group.op]:
            allowed = ", ".join(sorted(ALLOWED[group.op]))
            found = f"{group.op} has no algorithm {group.algorithm}"
            problems.append(Problem(f"{place}.algorithm", found, f"use one of {allowed}"))
    return problems


def _requirement_problems(pcg: PCG) -> list[Problem]:
    problems: list[Problem] = []
    needed: dict[int, tuple[str, int]] = {}
    for index, need in enumerate(pcg.requires):
        place = f"requires[{index}]"
        problems += _rank_problems(need.ranks, place, pcg.world_size)
        for rank in need.ranks:
            kind, first = needed.setdefault(rank, (need.accelerator, index))
            if kind != need.accelerator:
                found = (
                    f"rank {rank} needs {need.accelerator!r} here and {kind!r} in requires[{first}]"
                )
                problems.append(Problem(place, found, "name one accelerator for it"))
    return problems
