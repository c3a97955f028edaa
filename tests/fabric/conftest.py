"""Fabrics for the tests of this folder. What the machine lacks is said, and fails in CI."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fabric.fabric import Fabric
from fabric.faults import Faults
from fabric.tools import missing
from fabric.topology import Plan


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.fabric)


@pytest.fixture(scope="session", autouse=True)
def able() -> None:
    """A machine that can hold a fabric; tests skip where it cannot."""
    if reason := missing():
        pytest.skip(reason)


@pytest.fixture(scope="module")
def fabric(able: None) -> Iterator[Fabric]:
    """The small fabric, without faults: 2 leaves x 2 spines x 4 hosts."""
    with Fabric(Plan()) as found:
        yield found


@pytest.fixture
def faults(fabric: Fabric) -> Faults:
    """What to break in the small fabric."""
    return Faults(fabric)
