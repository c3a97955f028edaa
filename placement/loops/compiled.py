"""Compiling loops with numba, wherever its cache can be kept.

What takes a loop's compiling from tenths of a second to seconds, and so has no place in one:
sorting, assignments of whole arrays (`a[:] = b`), arithmetic on whole arrays, reductions. Arrays
for a loop to work in are best made by its caller.
"""

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
    return cast(Function, _cached(function))


def lean(function: Function) -> Function:
    """As `compiled`, without counting references, which costs more than a short function's work.

    Only for functions that make no array.
    """
    return cast(Function, _cached(function, _nrt=False))


def inner(function: Function) -> Function:
    """As `lean`, for functions that only compiled ones call, which are sooner compiled."""
    return cast(Function, _cached(function, _nrt=False, no_cpython_wrapper=True))


def _cached(function: Callable[..., Any], **options: bool) -> Any:
    found = _njit(nogil=True, no_cfunc_wrapper=True, **options)(function)
    if isinstance(found, Dispatcher):  # else numba is told not to compile
        dispatcher: Any = found
        with suppress(RuntimeError):  # there is no place for the cache
            dispatcher._cache = CompiledCache(dispatcher.py_func)
    return found
