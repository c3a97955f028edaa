"""Options that say what a placement must satisfy, the same for every verb that places."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from ...placement.constraints import (
    AtMost,
    Balanced,
    Constraints,
    Pin,
    SameKind,
    Segments,
    Together,
)
from ...placement.constraints_file import load_constraints

Function = TypeVar("Function", bound=Callable[..., Any])


class _Form(click.ParamType[Any]):
    """Text of a certain form, such as COUNT:TIER."""

    def __init__(self, form: str, read: Callable[[str], Any]) -> None:
        self.name, self._read = form, read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._read(value) if isinstance(value, str) else value
        except ValueError:
            self.fail(f"found {value!r}; write {self.name}", param, ctx)


def _counted(text: str) -> tuple[int, str]:
    count, colon, tier = text.partition(":")
    if not colon or not tier or int(count) < 1:
        raise ValueError
    return int(count), tier


def _balanced(text: str) -> Balanced:
    tier, colon, domains = text.partition(":")
    if not tier or (colon and int(domains) < 1):
        raise ValueError
    return Balanced(tier=tier, domains=int(domains) if colon else None)


def _pin(text: str) -> Pin:
    rank, equals, place = text.partition("=")
    node, colon, device = place.rpartition(":")
    if not equals or not place or int(rank) < 0:
        raise ValueError
    if colon and device.isdecimal():
        return Pin(rank=int(rank), node=node, device=int(device))
    return Pin(rank=int(rank), node=place)


_OPTIONS = (
    click.option("--constraints", "constraints_path", help="A file of constraints."),
    click.option("--together", metavar="TIER", help="All ranks in one domain of the tier."),
    click.option("--prefer-together", metavar="TIER", help="The same, or as near to it as can be."),
    click.option(
        "--at-most",
        type=_Form("NODES:TIER", _counted),
        metavar="NODES:TIER",
        help="No more nodes of the job in one domain of the tier.",
    ),
    click.option(
        "--balanced",
        type=_Form("TIER or TIER:DOMAINS", _balanced),
        metavar="TIER[:DOMAINS]",
        help="Equally many ranks in each domain of the tier that holds any.",
    ),
    click.option(
        "--segments",
        type=_Form("RANKS:TIER", _counted),
        metavar="RANKS:TIER",
        help="So many consecutive ranks each in one domain of the tier (or node).",
    ),
    click.option(
        "--pin",
        "pins",
        multiple=True,
        type=_Form("RANK=NODE or RANK=NODE:DEVICE", _pin),
        metavar="RANK=NODE[:DEVICE]",
        help="A rank on a node. May be repeated.",
    ),
    click.option("--exclude", "excluded", multiple=True, metavar="NODE", help="Not this node."),
    click.option("--whole-nodes", is_flag=True, help="Only nodes of which every device is free."),
    click.option(
        "--spares", type=click.IntRange(min=0), default=0, help="Whole nodes kept for repairs."
    ),
    click.option(
        "--same-kind",
        type=click.Choice(["job", "group"]),
        help="One accelerator kind for the job, or for ranks that collectives join.",
    ),
    click.option(
        "--split-tensor-groups",
        is_flag=True,
        help="Let a tensor-parallel group leave its scale-up domain.",
    ),
)
_FLAGS = {
    "together": "--together",
    "at_most": "--at-most",
    "balanced": "--balanced",
    "segments": "--segments",
    "pinned": "--pin",
    "excluded_nodes": "--exclude",
    "whole_nodes": "--whole-nodes",
    "spares": "--spares",
    "same_kind": "--same-kind",
    "split_tensor_groups": "--split-tensor-groups",
}


def constraint_options(function: Function) -> Function:
    """Give a command these options; it is called with `constraints`, None when there are none."""

    @wraps(function)
    def command(**given: Any) -> Any:
        return function(constraints=_constraints(given), **given)

    result: Any = command
    for option in reversed(_OPTIONS):
        result = option(result)
    return result  # type: ignore[no-any-return]


def _constraints(given: dict[str, Any]) -> Constraints | None:
    """The constraints among a command's arguments, which are taken out of them."""
    path = given.pop("constraints_path")
    together, preferred = given.pop("together"), given.pop("prefer_together")
    at_most, segments = given.pop("at_most"), given.pop("segments")
    kind = given.pop("same_kind")
    if together and preferred:
        raise click.UsageError("give one of --together and --prefer-together")
    asked: dict[str, Any] = {
        "together": Together(tier=together or preferred, required=bool(together))
        if together or preferred
        else None,
        "at_most": AtMost(nodes=at_most[0], tier=at_most[1]) if at_most else None,
        "balanced": given.pop("balanced"),
        "segments": Segments(ranks=segments[0], tier=segments[1]) if segments else None,
        "pinned": tuple(given.pop("pins")),
        "excluded_nodes": tuple(given.pop("excluded")),
        "whole_nodes": given.pop("whole_nodes"),
        "spares": given.pop("spares"),
        "same_kind": SameKind(per=kind) if kind else None,
        "split_tensor_groups": given.pop("split_tensor_groups"),
    }
    asked = {name: value for name, value in asked.items() if value}
    if path is None:
        return Constraints(**asked) if asked else None
    filed = load_constraints(path)
    twice = [name for name in asked if getattr(filed, name)]
    if twice:
        raise click.UsageError(
            f"{path} says {twice[0]} and so does {_FLAGS[twice[0]]}; give it in one place"
        )
    found = Constraints(**{name: getattr(filed, name) for name in filed.model_fields_set} | asked)
    return None if found.empty else found
