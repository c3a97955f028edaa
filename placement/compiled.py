"""Compiling loops with numba, wherever its cache can be kept."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

import numba
from numba.core.dispatcher import Dispatcher

from .compiled_cache import CompiledCache

Function = TypeVar("Function", bound=Callable[..., Any])
_njit: Any = numba.njit  # its types do not tell of all its options


def compiled(function: Function) -> Function:
    """`function` as machine code that runs without the interpreter lock.

    The code is cached, see `compiled_cache`; where no cache can be written, it is compiled anew in
    each process.
    """
    return cast(Function, _cached(_njit(nogil=True)(function)))


def lean(function: Function) -> Function:
    """As `compiled`, without counting references, which costs more than a short function's work.

    Only for functions that make no array.
    """
    return cast(Function, _cached(_njit(nogil=True, _nrt=False)(function)))


def _cached(found: Any) -> Any:
    if isinstance(found, Dispatcher):  # else numba is told not to compile
        dispatcher: Any = found
        with suppress(RuntimeError):  # there is no place for the cache
            dispatcher._cache = CompiledCache(dispatcher.py_func)
    return found
