"""Which machine each node is, where several files tell parts of it or name no node at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from ..errors import InvalidInput, Problem
from .facts import ANY_NODE, Facts, Machine

_FACTS = (("number of devices", "devices"), ("accelerator", "accelerator"))


def completed(machine: Machine, other: Machine) -> Machine:
    """A machine with the facts it lacks taken from another file's."""
    told = {name: value for name, value in vars(machine).items() if value not in (None, (), "")}
    return replace(other, **told)


def contradictions(known: Machine, machine: Machine) -> list[tuple[str, object, object]]:
    """What two files tell differently of one machine: the fact, the first value, the second."""
    return [
        (what, ours, theirs)
        for what, name in _FACTS
        if (ours := getattr(known, name)) is not None
        and (theirs := getattr(machine, name)) is not None
        and ours != theirs
    ]


def lone_names(facts: Mapping[str, Facts]) -> dict[str, list[str]]:
    """Nodes that files which name none describe when they stand alone, with the files of each.

    Files that complete each other are one node, which has the name of the first; two files of one
    format are two nodes.
    """
    groups: list[list[str]] = []
    for file in (file for file, each in facts.items() if ANY_NODE in each.machines):
        for group in groups:
            if _complete_each_other(facts, [*group, file]):
                group.append(file)
                break
        else:
            groups.append([file])
    found: dict[str, list[str]] = {}
    for group in groups:
        name = Path(group[0]).stem or "node"
        while name in found:
            name += "-2"
        found[name] = group
    return found


def machines_of(
    nodes: Sequence[str],
    named: Mapping[str, Machine],
    facts: Mapping[str, Facts],
    patterns: Mapping[str, str],
    warnings: list[str],
) -> dict[str, Machine]:
    """The machine of each node: by its own name, by pattern, or the only one that is described.

    patterns: by file, which nodes its machine stands for. Raises InvalidInput where several
    machines without a name are described and nothing says which node is like which.
    """
    stands_for = {file: _only_machine(file, facts[file]) for file in patterns}
    general = [
        file for file, each in facts.items() if ANY_NODE in each.machines and file not in patterns
    ]
    alone = lone_names(facts)
    if set(alone) >= set(nodes):
        of_file = {file: name for name, files in alone.items() for file in files}
        general_of = {node: [f for f in general if of_file[f] == node] for node in nodes}
    else:
        if not _complete_each_other(facts, general):
            found = f"{len(general)} files describe a machine without naming it: "
            fix = "say which nodes each is like: --machine FILE=PATTERN, such as dgx.txt=dgx-*"
            raise InvalidInput("import", [Problem("", found + ", ".join(general), fix)])
        general_of = dict.fromkeys(nodes, general)
    machines = {}
    differing: dict[tuple[str, object, object], list[str]] = {}
    for node in nodes:
        parts = [named[node]] if node in named else []
        fitting = [file for file, pattern in patterns.items() if fnmatchcase(node, pattern)]
        parts += [stands_for[file] for file in fitting]
        if not fitting:
            parts += [facts[file].machines[ANY_NODE] for file in general_of[node]]
        for part in parts[1:] if node in named else ():
            for told in contradictions(named[node], part):
                differing.setdefault(told, []).append(node)
        machine = Machine()
        for part in reversed(parts):
            machine = completed(part, machine)
        machines[node] = machine
    for (what, ours, theirs), of in differing.items():
        also = f" and {len(of) - 1} more" if len(of) > 1 else ""
        warnings.append(
            f"{what} of {of[0]}{also}: {ours} by the file that names the node, {theirs} by "
            f"{', '.join([*patterns, *general])}; the first is taken"
        )
    for file, pattern in patterns.items():
        if not any(fnmatchcase(node, pattern) for node in nodes):
            warnings.append(f"{file}: no node is like {pattern!r}, which it was to describe")
    return machines


def _only_machine(file: str, facts: Facts) -> Machine:
    machines = list(facts.machines.values())
    if len(machines) == 1:
        return machines[0]
    found = f"it describes {len(machines)} machines" if machines else "it describes no machine"
    fix = "a pattern of nodes is for a file that describes one machine"
    raise InvalidInput("import", [Problem(file, found, fix)])


def _complete_each_other(facts: Mapping[str, Facts], files: Sequence[str]) -> bool:
    """Whether files tell of one machine: each of another format, and none against another."""
    machines = [facts[file].machines[ANY_NODE] for file in files]
    return len({facts[file].format for file in files}) == len(files) and not any(
        contradictions(one, other)
        for index, one in enumerate(machines)
        for other in machines[:index]
    )
