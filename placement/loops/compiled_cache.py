"""Where machine code is kept between processes, so that none is run that its sources do not give.

numba compares a cached function with its own file only. What it was compiled with from other
modules (functions that it calls, constants, the order of a tuple's fields) would stay as it was. So
each module has a folder named after a digest of its text and of theirs: another text, another
folder. Processes of several versions may run at the same time.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import shutil
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import numpy as np
from numba.core import caching
from numba.core.dispatcher import Dispatcher
from numba.misc.appdirs import AppDirs

_UNUSED_S = 7 * 86400
"""Folders that no process has begun with for so long are removed when a new one is made."""
_settings: Any = numba.config  # its types do not tell of what it reads from the environment
_PLAIN = (bool, int, float, complex, str, bytes, np.generic)


@cache
def digest(module: str) -> str:
    """Of a module, and of all of its package that machine code of its functions depends on.

    To be asked for the first time when the module's imports are done: at its first function.
    """
    found = hashlib.sha256(f"{numba.__version__} {sys.version}".encode())
    for part in _parts(module, set()):
        found.update(hashlib.sha256(part).digest())
    return found.hexdigest()[:20]


def _parts(module: str, seen: set[str]) -> Iterator[bytes]:
    """The text and the plain values of a module and of those that it has compiled things from."""
    seen.add(module)
    package = module.partition(".")[0]
    loaded = sys.modules[module]
    yield Path(inspect.getfile(loaded)).read_bytes()
    others = set()
    for name, value in sorted(vars(loaded).items()):
        if name.startswith("__"):
            continue
        if _is_plain(value):
            yield f"{name} = {value!r}".encode()
        elif isinstance(value, np.ndarray):
            yield f"{name} = {value.dtype} {value.shape}".encode() + value.tobytes()
        else:
            others.add(_home(value))
    for other in sorted(others):
        if other not in seen and other.partition(".")[0] == package and other in sys.modules:
            yield from _parts(other, seen)


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple) and type(value) is tuple:
        return all(_is_plain(part) for part in value)
    return value is None or isinstance(value, _PLAIN)


def _home(value: Any) -> str:
    """The module whose text decides what compiled code makes of a value; "" where none does."""
    if isinstance(value, ModuleType):
        return value.__name__
    if isinstance(value, Dispatcher):
        return str(value.py_func.__module__)
    if isinstance(value, type) and issubclass(value, tuple):  # a NamedTuple
        return value.__module__
    return ""


def _roots(py_file: str) -> Iterator[Path]:
    """Folders for caches, best first: as numba's are, given, beside the module, the user's."""
    if _settings.CACHE_DIR:
        yield Path(_settings.CACHE_DIR)
    yield Path(py_file).parent / "__pycache__"
    yield Path(AppDirs(appname="railweave", appauthor=False).user_cache_dir) / "compiled"


class _Locator(caching.InTreeCacheLocator):
    """The folder of a module's machine code: the first that can be written."""

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _Locator | None:
        module = py_func.__module__
        try:
            version = digest(module)
        except (OSError, TypeError):  # a module without a file has no text to compare
            return None
        for root in _roots(py_file):
            found = cls(py_func, py_file)
            folder = root / f"{module}-{version}"
            found._cache_path = os.fspath(folder)
            new = not folder.is_dir()
            try:
                found.ensure_cache_path()
                os.utime(folder)
            except OSError:
                continue
            if new:
                _remove_unused(folder, module)
            return found
        return None


def _remove_unused(newest: Path, module: str) -> None:
    now_s = newest.stat().st_mtime
    for folder in newest.parent.glob(f"{module}-*"):
        try:
            if folder.stat().st_mtime < now_s - _UNUSED_S:
                shutil.rmtree(folder)
        except OSError:  # another process removes it too, or it is not ours to remove
            continue


class _Implementation(caching.CompileResultCacheImpl):
    _locator_classes: list[type[object]] = [_Locator]  # noqa: RUF012


class CompiledCache(caching.FunctionCache):
    """The cache of one function's machine code. Raises RuntimeError where it has no place."""

    _impl_class = _Implementation

    def __init__(self, py_func: Any) -> None:
        super().__init__(py_func)
        # Else two processes that compile for different arguments at the same time name their files
        # alike, and each finds the other's code in its own.
        name = f"{self._impl.filename_base}.{uuid.uuid4().hex[:12]}"
        self._cache_file._data_name_pattern = name + ".{number:d}.nbc"

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # whatever a damaged file leads to, compiling anew mends it
            with suppress(OSError):
                self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(OSError):  # a full disk: the code serves this process all the same
            super().save_overload(sig, data)
