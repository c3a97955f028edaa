"""Outputs of tools that an operator hands in for a node: a folder of files of any known format."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ..placement.errors import InvalidInput
from ..placement.importers.facts import ANY_NODE, Machine
from ..placement.importers.machines import completed, contradictions
from ..placement.importers.registry import read_facts

NODE_FILES = "RAILWEAVE_NODE_FILES"
"""The environment variable with the folder, for the agent of each node."""
_MOST_FILES = 64


def node_files(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The folder that the environment names; None where it names none."""
    folder = environment.get(NODE_FILES, "").strip()
    return Path(folder) if folder else None


def read_node_files(folder: Path, node: str, host: str) -> tuple[Machine | None, tuple[str, ...]]:
    """What the files say of this node together, and notes on those that say nothing.

    Files complete each other in the order of their names; the first that tells a fact is believed.
    A machine that its file names is only taken where the name is this node's.
    """
    notes: list[str] = []
    try:
        files = sorted(path for path in folder.iterdir() if path.is_file())
    except OSError as error:
        return None, (f"{folder}: cannot be read: {error.strerror}",)
    if len(files) > _MOST_FILES:
        notes.append(f"{folder}: {len(files)} files; the first {_MOST_FILES} are read")
    known: Machine | None = None
    for path in files[:_MOST_FILES]:
        try:
            facts = read_facts(path)
        except InvalidInput as error:
            first = error.problems[0] if error.problems else error
            notes.append(f"{path.name}: not read: {first}")
            continue
        notes += [f"{path.name}: {warning}" for warning in facts.warnings]
        mine = [
            machine
            for name, machine in facts.machines.items()
            if name == ANY_NODE or _same(name, node) or _same(name, host)
        ]
        if not mine:
            notes.append(f"{path.name}: {facts.format} says nothing of this node")
        for machine in mine:
            if known is not None:
                notes += [
                    f"{path.name}: {what} is {theirs}, a file before says {ours}; that is kept"
                    for what, ours, theirs in contradictions(known, machine)
                ]
            known = machine if known is None else completed(known, machine)
    return known, tuple(notes)


def _same(name: str, other: str) -> bool:
    return name.partition(".")[0] == other.partition(".")[0]
