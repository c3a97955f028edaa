"""Machine code that is kept between processes is never older than what it was compiled from."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numba
import pytest
from railweave.placement.loops import compiled_cache

INNER = """
from railweave.placement.loops.compiled import compiled

@compiled
def part(x):
    return x + 1
"""
SETTINGS = """
from typing import NamedTuple

STEP = 10

class Pair(NamedTuple):
    first: int
    second: int
"""
OUTER = """
from railweave.placement.loops.compiled import compiled, lean
from .inner import part
from .settings import STEP, Pair

TWICE = 2 * STEP

@compiled
def whole(pair: Pair):
    return part(pair.first) * 1000 + TWICE

@lean
def other(x):
    return x

def run():
    # What it finds, how much was not compiled anew, and where the code is kept.
    found = whole(Pair(1, 2))
    return found, sum(whole.stats.cache_hits.values()), str(whole.stats.cache_path)
"""
RUN = "from loops.outer import run; print(run()[0])"


@dataclass(frozen=True)
class Ran:
    found: int
    loaded: int
    folder: Path


@pytest.fixture
def loops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = tmp_path / "loops"
    package.mkdir()
    for name, text in (
        ("__init__", ""),
        ("inner", INNER),
        ("settings", SETTINGS),
        ("outer", OUTER),
    ):
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    # Python too would take a text of the same size and time for the one that it has compiled.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return package


def run(loops: Path) -> Ran:
    """Import the package and call its function, as a new process would."""
    for name in [name for name in sys.modules if name.partition(".")[0] == loops.name]:
        del sys.modules[name]
    importlib.invalidate_caches()
    compiled_cache.digest.cache_clear()
    found, loaded, folder = importlib.import_module("loops.outer").run()
    return Ran(found, loaded, Path(folder))


def edit(path: Path, old: str, new: str) -> None:
    """Change a file but neither its size nor its time, as an upgrade that keeps times may."""
    before, text = path.stat(), path.read_text()
    assert len(old) == len(new) and old in text
    path.write_text(text.replace(old, new))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_code_is_kept_and_made_anew_when_anything_it_is_made_from_changes(loops: Path) -> None:
    first = run(loops)
    assert first == Ran(2020, 0, first.folder)
    assert first.folder.parent == loops / "__pycache__"
    assert run(loops) == Ran(2020, 1, first.folder)
    for module, old, new, then in (
        ("inner", "x + 1", "x + 2", 3020),  # a function that it calls
        ("settings", "STEP = 10", "STEP = 30", 3060),  # a constant, by way of another one
        ("settings", "first: int\n    second: int", "second: int\n    first: int", 4060),  # a tuple
        ("outer", "1000", "2000", 8060),  # its own text
    ):
        edit(loops / f"{module}.py", old, new)
        changed = run(loops)
        assert (changed.found, changed.loaded) == (then, 0), module


def test_code_of_an_earlier_version_serves_again_until_it_is_long_unused(loops: Path) -> None:
    first = run(loops)
    edit(loops / "inner.py", "x + 1", "x + 2")
    second = run(loops)
    edit(loops / "inner.py", "x + 2", "x + 1")
    assert run(loops) == Ran(2020, 1, first.folder)
    eight_days_ago_s = first.folder.stat().st_mtime - 8 * 86400
    os.utime(second.folder, (eight_days_ago_s, eight_days_ago_s))
    edit(loops / "inner.py", "x + 1", "x + 3")
    run(loops)
    assert not second.folder.exists() and first.folder.exists()


def test_a_package_that_cannot_be_written_has_its_code_in_the_users_cache(
    loops: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (loops / "__pycache__").write_text("no folder, so that not even root can write into it")
    first = run(loops)
    assert first.folder.parent == loops.parent / "user" / "railweave" / "compiled"
    assert run(loops) == Ran(2020, 1, first.folder)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(loops.parent / "given"))
    assert run(loops).folder.parent == loops.parent / "given"


def test_without_any_place_for_a_cache_the_code_is_made_in_each_process(loops: Path) -> None:
    (loops / "__pycache__").write_text("no folder")
    (loops.parent / "user").write_text("no folder")
    for _ in range(2):
        assert run(loops) == Ran(2020, 0, Path("None"))


def test_damaged_code_is_made_anew(loops: Path) -> None:
    first = run(loops)
    for path in first.folder.iterdir():
        path.write_bytes(path.read_bytes()[:100])
    assert run(loops) == first
    assert run(loops) == Ran(2020, 1, first.folder)


def test_processes_that_compile_at_the_same_time_do_not_disturb_each_other(loops: Path) -> None:
    environment = dict(os.environ) | {"PYTHONPATH": str(loops.parent), "NUMBA_CACHE_DIR": ""}
    running = [
        subprocess.Popen([sys.executable, "-c", RUN], env=environment, stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    assert [process.communicate(timeout=240)[0] for process in running] == [b"2020\n"] * 3
    assert run(loops).loaded == 1
