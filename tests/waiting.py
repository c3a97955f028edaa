"""Waiting for a condition instead of for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def wait_until(predicate: Callable[[], Found], deadline_s: float, what: str) -> Found:
    """The first true value of `predicate`; fails naming `what` after `deadline_s`."""
    give_up = time.monotonic() + deadline_s
    while not (found := predicate()):
        if time.monotonic() >= give_up:
            raise AssertionError(f"after {deadline_s:g} s still not: {what} (last: {found!r})")
        time.sleep(0.01)
    return found
