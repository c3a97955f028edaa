"""Value types of model descriptions: sizes of a sensible magnitude, and kinds of norm."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

LARGEST_SIZE = 10**12
MOST_LAYERS = 100_000

Count = Annotated[int, Field(strict=True, ge=1, le=LARGEST_SIZE)]
CountOrZero = Annotated[int, Field(strict=True, ge=0, le=LARGEST_SIZE)]
LayerCount = Annotated[int, Field(strict=True, ge=1, le=MOST_LAYERS)]

Norm = Literal["layer", "layer-unbiased", "rms", "plain"]
"""layer: weight and bias; layer-unbiased and rms: a weight; plain: no parameters."""

Positions = Literal["learned", "rotary", "alibi", "relative", "fixed", "none"]


def norm_parameters(norm: Norm, width: int) -> int:
    """Parameters of one norm over `width` elements."""
    return {"layer": 2, "layer-unbiased": 1, "rms": 1, "plain": 0}[norm] * width
