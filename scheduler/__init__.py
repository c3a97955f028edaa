"""Scheduler: the daemon, its store, and the ways to talk to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .client import Client
    from .job import Job
    from .lifecycle import JobState

__all__ = ["Client", "Job", "JobState"]

_HOMES = {"Client": "client", "Job": "job", "JobState": "lifecycle"}


def __getattr__(name: str) -> Any:
    # Imported on first use: the client needs Ray, which takes a second that others need not wait.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
