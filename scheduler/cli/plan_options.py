"""Options of `railweave plan` that say what a plan may choose from."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, get_args

import click

from ...placement.planning.limits import Limits
from ...placement.workload import ContextForm, Recompute, Schedule

Function = TypeVar("Function", bound=Callable[..., Any])


class _Several(click.ParamType[Any]):
    """Values joined by commas: numbers, or words of a choice."""

    def __init__(self, words: tuple[str, ...] = (), numbers: tuple[int, ...] = ()) -> None:
        self.name = ",".join(words) or ",".join(map(str, numbers)) or "N,N"
        self._words, self._numbers = words, numbers

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        parts = [part.strip() for part in value.split(",")]
        if self._words:
            if not set(parts) <= set(self._words):
                self.fail(f"found {value!r}; give some of {self.name}", param, ctx)
            return tuple(dict.fromkeys(parts))
        if not all(part.isdecimal() for part in parts):
            self.fail(f"found {value!r}; give whole numbers joined by commas: 4,8", param, ctx)
        found = tuple(dict.fromkeys(map(int, parts)))
        allowed = self._numbers or [number for number in found if number > 0]
        if not set(found) <= set(allowed):
            what = self.name if self._numbers else "numbers from 1"
            self.fail(f"found {value!r}; give some of {what}", param, ctx)
        return found


_NUMBERS = _Several()
_COUNT = click.IntRange(min=1)
_OPTIONS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("tp", "--tp", {"type": _NUMBERS, "help": "Tensor-parallel degrees to choose from."}),
    ("pp", "--pp", {"type": _NUMBERS, "help": "Numbers of pipeline stages."}),
    ("dp", "--dp", {"type": _NUMBERS, "help": "Numbers of data-parallel replicas."}),
    ("cp", "--cp", {"type": _NUMBERS, "help": "Context-parallel degrees."}),
    ("ep", "--ep", {"type": _NUMBERS, "help": "Expert-parallel degrees."}),
    ("etp", "--etp", {"type": _NUMBERS, "help": "Ranks that share an expert's matrices."}),
    ("virtual_pp", "--virtual-pp", {"type": _NUMBERS, "help": "Pipeline stages a rank."}),
    ("micro_batch", "--micro-batch", {"type": _NUMBERS, "help": "Samples at a time."}),
    ("most_tp", "--most-tp", {"type": _COUNT, "help": "By default the scale-up domain."}),
    ("most_pp", "--most-pp", {"type": _COUNT}),
    ("most_cp", "--most-cp", {"type": _COUNT, "help": "By default 1024 tokens a rank remain."}),
    ("most_ep", "--most-ep", {"type": _COUNT}),
    ("most_virtual_pp", "--most-virtual-pp", {"type": _COUNT, "help": "8 by default."}),
    ("most_micro_batch", "--most-micro-batch", {"type": _COUNT, "help": "32 by default."}),
    ("zero", "--zero", {"type": _Several(numbers=(0, 1, 2, 3)), "help": "Levels of ZeRO."}),
    ("recompute", "--recompute", {"type": _Several(get_args(Recompute))}),
    ("schedules", "--schedule", {"type": _Several(get_args(Schedule))}),
    ("context_forms", "--context-form", {"type": _Several(get_args(ContextForm))}),
    (
        "sequence_parallel",
        "--sequence-parallel/--no-sequence-parallel",
        {"default": None, "help": "Both are tried by default."},
    ),
    (
        "hybrid_sharding",
        "--hybrid-sharding/--no-hybrid-sharding",
        {"default": None, "help": "Sharing out inside nodes or domains; tried by default."},
    ),
    (
        "uneven_stages",
        "--uneven-stages/--even-stages",
        {"default": None, "help": "Uneven ones are tried by default."},
    ),
    (
        "memory_share",
        "--memory-share",
        {
            "type": click.FloatRange(0, 1, min_open=True),
            "help": "Of a device's memory, what a rank may be predicted to need; 1 by default.",
        },
    ),
)


def limit_options(function: Function) -> Function:
    """Add the options for `Limits`; the command gets them as `limits`."""

    @wraps(function)
    def collected(**given: Any) -> Any:
        fields = {name: given.pop(name) for name, _, _ in _OPTIONS}
        known = {name: value for name, value in fields.items() if value is not None}
        return function(limits=Limits(**known), **given)

    decorated: Any = collected
    for name, flag, more in reversed(_OPTIONS):
        decorated = click.option(flag, name, **more)(decorated)
    found: Function = decorated
    return found
