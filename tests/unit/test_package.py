"""The package: one import name, every module in the wheel, imports in one direction."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("placement", "agents", "scheduler")  # a part may import itself and those before it


def modules(part: str, root: Path = ROOT) -> list[Path]:
    return sorted(p for p in (root / part).rglob("*.py") if "__pycache__" not in p.parts)


def run(*command: str, cwd: Path = ROOT) -> str:
    """What a command prints, once it has ended well."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def imported_parts(path: Path) -> set[str]:
    """Parts that a module imports, by relative or absolute imports, anywhere in it."""
    package = path.relative_to(ROOT).parent.parts
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            above = package[: len(package) - (node.level - 1)]
            target = (*above, *(node.module.split(".") if node.module else ()))
            if not target:
                target = tuple(alias.name for alias in node.names[:1])
            found.add(target[0])
        elif isinstance(node, ast.ImportFrom):
            match = re.match(r"railweave\.(\w+)", node.module or "")
            if match:
                found.add(match[1])
        elif isinstance(node, ast.Import):
            for alias in node.names:
                match = re.match(r"railweave\.(\w+)", alias.name)
                if match:
                    found.add(match[1])
    return found & set(PARTS)


@pytest.mark.parametrize("part", PARTS)
def test_imports_go_from_scheduler_to_agents_to_placement_only(part: str) -> None:
    allowed = set(PARTS[: PARTS.index(part) + 1])
    wrong = {str(p.relative_to(ROOT)): imported_parts(p) - allowed for p in modules(part)}
    assert {name: parts for name, parts in wrong.items() if parts} == {}


def test_bounds_of_cp_sat_are_read_where_it_is_known_when_they_are_none() -> None:
    reads = re.compile(r"best_objective_bound|\bbest_bound\b|BestObjectiveBound")
    found = [p for part in PARTS for p in modules(part) if reads.search(p.read_text("utf-8"))]
    assert found == [ROOT / "placement" / "loops" / "budget.py"]


def test_placement_imports_neither_ray_nor_network_nor_clock() -> None:
    code = (
        "import sys; import railweave.placement; "
        "print(sorted(m for m in ('ray', 'torch', 'sqlalchemy', 'railweave.agents', "
        "'railweave.scheduler') if m in sys.modules))"
    )
    assert run(sys.executable, "-c", code).strip() == "[]"
    impure = {"time", "datetime", "socket", "subprocess", "threading", "requests", "urllib"}
    for path in modules("placement"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            roots = {name.split(".")[0] for name in names}
            assert not roots & impure, f"{path.name} imports {sorted(roots & impure)}"


def test_checkpoint_module_imports_neither_ray_nor_torch() -> None:
    code = (
        "import sys; import railweave.agents.checkpoint; "
        "print(sorted(m for m in ('ray', 'torch') if m in sys.modules))"
    )
    assert run(sys.executable, "-c", code).strip() == "[]"


def test_every_package_folder_is_listed_for_the_wheel() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {
        "railweave." + ".".join(p.parent.relative_to(ROOT).parts)
        for part in PARTS
        for p in modules(part)
    }
    assert sorted(folders) == sorted(listed)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel built from a copy of the tracked files, so that nothing local leaks in."""
    base = tmp_path_factory.mktemp("wheel")
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    source = base / "source"
    for name in filter(None, listed.split("\0")):
        with suppress(FileNotFoundError):  # deleted, but not yet in git
            content = (ROOT / name).read_bytes()
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    run(sys.executable, "-m", "build", "--wheel", "--outdir", str(base / "dist"), str(source))
    (built,) = (base / "dist").glob("*.whl")
    return built


def test_wheel_holds_railweave_and_nothing_else_with_every_module(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"railweave"}
    held = {name for name in names if name.endswith(".py")}
    source = wheel.parents[1] / "source"  # the work tree may have changed since
    wanted = {f"railweave/{p.relative_to(source)}" for part in PARTS for p in modules(part, source)}
    assert held == wanted
    templates = {f"railweave/{p.relative_to(source)}" for p in source.glob("scheduler/templates/*")}
    assert templates <= set(names)


def test_installing_puts_only_railweave_on_the_path(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env")
    python = str(tmp_path / "env" / "bin" / "python")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    run(*pip, "install", "--no-deps", str(wheel))
    code = (
        "import importlib.util as u, importlib.metadata as m; "
        "print([n for n in ('placement', 'agents', 'scheduler', 'tests', 'benchmarks', 'examples')"
        " if u.find_spec(n)]); "
        "print(sorted({p.parts[0] for p in m.files('railweave') if not p.parts[0].startswith('..')"
        " and '.dist-info' not in p.parts[0]}))"
    )
    assert run(python, "-c", code, cwd=tmp_path).splitlines() == ["[]", "['railweave']"]
