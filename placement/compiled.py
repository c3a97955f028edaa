"""Compiling loops with numba, wherever its cache can be kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])
_njit: Any = numba.njit  # its types do not tell of all its options


def compiled(function: Function) -> Function:
    """`function` as machine code that runs without the interpreter lock.

    The code is cached beside the module or in the user's cache; where neither can be written, it
    is compiled anew in each process.
    """
    try:
        return cast(Function, numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:  # there is no place for the cache
        return cast(Function, numba.njit(nogil=True)(function))


def lean(function: Function) -> Function:
    """As `compiled`, without counting references, which costs more than a short function's work.

    Only for functions that make no array.
    """
    try:
        return cast(Function, _njit(cache=True, nogil=True, _nrt=False)(function))
    except RuntimeError:  # there is no place for the cache
        return cast(Function, _njit(nogil=True, _nrt=False)(function))
