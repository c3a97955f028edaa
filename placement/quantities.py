"""Value types of the file formats: finite numbers of a sensible size, and printable names."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, Strict

# No quantity of a cluster or a step comes near it, and sums and products of such stay finite.
LARGEST = 1e30
LONGEST_NAME = 1000
MOST_DEVICES_A_NODE = 4096
MOST_RANKS = 100_000_000


def _no_truth_value(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError(f"a number, not {str(value).lower()}")
    return value


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a finite number")
    return _no_truth_value(value)


def _as_name(value: Any) -> Any:
    # YAML reads `pod: 1` as a number; an identifier is text whatever it looks like. A float is
    # refused: 1.10 and 1.1 are two names but one number.
    if isinstance(value, bool | float):
        raise ValueError(f'a name; put quotes around it ("{value}") if it is one')
    return str(value) if isinstance(value, int) else value


def _printable(value: str) -> str:
    if not value or len(value) > LONGEST_NAME:
        raise ValueError(f"a name of 1 to {LONGEST_NAME} characters")
    if not value.isprintable() or value != value.strip():
        raise ValueError("a name of printable characters, without spaces at its ends")
    return value


Positive = Annotated[float, BeforeValidator(_finite), Field(gt=0, le=LARGEST, allow_inf_nan=False)]
NonNegative = Annotated[
    float, BeforeValidator(_finite), Field(ge=0, le=LARGEST, allow_inf_nan=False)
]
Index = Annotated[int, Strict()]
"""A whole number that is an index: rank or device; its range is checked where it is known."""
DeviceCount = Annotated[int, BeforeValidator(_no_truth_value), Field(ge=0, le=MOST_DEVICES_A_NODE)]
RailCount = Annotated[int, BeforeValidator(_no_truth_value), Field(ge=1, le=MOST_DEVICES_A_NODE)]
RankCount = Annotated[int, BeforeValidator(_no_truth_value), Field(ge=1, le=MOST_RANKS)]
Name = Annotated[str, BeforeValidator(_as_name), AfterValidator(_printable)]
