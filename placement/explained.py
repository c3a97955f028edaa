"""Values that explain themselves: pydantic models whose faults are told as InvalidInput."""

from __future__ import annotations

import difflib
from reprlib import Repr
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from .errors import InvalidInput, Problem

_REPR = Repr()
_REPR.maxlevel, _REPR.maxstring, _REPR.maxother, _REPR.maxlong = 3, 60, 60, 60


class Explained(BaseModel):
    """A frozen value; making a wrong one raises InvalidInput that lists every fault."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            kind = type(self)
            raise InvalidInput(kind.__name__, problems_of(error, kind)) from None

    # Marked as pydantic marks its own: data nested in other models is validated without this
    # method, so that each fault keeps its place.
    __init__.__dict__["__pydantic_base_init__"] = True


def shown(value: Any) -> str:
    """A value as it may stand in an error: short, however large or deep it is."""
    text = _REPR.repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def problems_of(error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    """What a pydantic error found in input for `model`, each with its place."""
    problems: list[Problem] = []
    for item in error.errors(include_url=False):
        place = place_text(item["loc"])
        wrapped = item.get("ctx", {}).get("error")
        if isinstance(wrapped, InvalidInput):
            problems.extend(_inside(place, problem) for problem in wrapped.problems)
            continue
        kind, value = item["type"], item.get("input")
        if kind == "invalid_key" or item["loc"][-1:] == ("[key]",):
            around = item["loc"][:-2] if item["loc"][-1] == "[key]" else item["loc"][:-1]
            fix = "a key must be text; put quotes around it"
            problems.append(Problem(place_text(around), f"the key {shown(item['loc'][-1])}", fix))
        elif kind == "missing":
            problems.append(Problem(place, "missing", "add it"))
        elif kind == "extra_forbidden":
            problems.append(Problem(place, "unknown key", _key_hint(model, item["loc"])))
        else:
            needed = str(wrapped) if isinstance(wrapped, ValueError) else item["msg"]
            problems.append(Problem(place, f"found {shown(value)}", f"needed: {needed}"))
    return problems


def _inside(place: str, problem: Problem) -> Problem:
    parts = [part for part in (place, problem.place) if part]
    return Problem(".".join(parts).replace(".[", "["), problem.found, problem.fix)


def _key_hint(model: type[BaseModel], location: tuple[int | str, ...]) -> str:
    names: set[str] = set()
    stack: list[type[BaseModel]] = [model]
    while stack:
        current = stack.pop()
        for name, field in current.model_fields.items():
            names.add(name)
            for part in _models_in(field.annotation):
                stack.append(part)
    close = difflib.get_close_matches(str(location[-1]), sorted(names), n=1)
    return (
        f"did you mean {close[0]!r}?"
        if close
        else "remove it (notes may be kept under keys that start with x-)"
    )


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in getattr(annotation, "__args__", ()) for model in _models_in(part)]


def place_text(location: tuple[int | str, ...]) -> str:
    """A place in a file as a reader writes it: `nodes[3].domains.pod`."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else str(part))
    return text
