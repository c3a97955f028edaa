"""Labels of nodes at several rungs, such as leaf, pod and zone, as tiers and domains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from .facts import Network, TierFacts


class NotNested(ValueError):
    """A value that lies in two values of the rung outside of it; names a node of each."""

    def __init__(self, found: str, nodes: tuple[str, str]) -> None:
        super().__init__(found)
        self.nodes = nodes


@dataclass(frozen=True)
class Ladder:
    """rungs: nearest first. counts: values of each. network: the rungs as tiers."""

    rungs: tuple[str, ...]
    counts: Mapping[str, int]
    network: Network
    warnings: tuple[str, ...]


def ladder_of(
    rungs: Sequence[str],
    values: Mapping[str, Mapping[str, str]],
    tiers: Sequence[str] | None = None,
    unique: bool = True,
) -> Ladder:
    """The tiers that labels make.

    rungs: nearest first, as the format says. values: `[node][rung]`; a rung that a node lacks is
    left out. tiers: their names, nearest first; those of the rungs when None. unique: whether a
    value stands for one place wherever it occurs; else a value under two others is two places,
    called by both names.

    Nearer rungs have more values, each of which lies in one value of the next: where that holds in
    the opposite order and not in this one, the opposite is taken, with a warning. Raises NotNested
    where it holds in neither and values are unique.
    """
    used = [rung for rung in rungs if any(rung in has for has in values.values())]
    warnings = []
    if not _holds(used, values) and _holds(used[::-1], values):
        used.reverse()
        told = ", ".join(f"{rung} {_count(rung, values)}" for rung in used)
        warnings.append(f"the labels run the other way round, by the number of values: {told}")
    elif not unique and not _holds(used, values) and _rising(used, values):
        used.reverse()
        warnings.append("the labels run the other way round, by the number of values")
    if unique:
        _refuse_split(used, values)
    placed = {node: _paths(used, has) for node, has in values.items()}
    known = _called(used, placed)
    split = [rung for rung in used if _count(rung, values) < len(set(known[rung].values()))]
    if split and not unique:
        shown = ", ".join(split)
        warnings.append(
            f"values of {shown} repeat under different ones of the rung above; each is its own "
            "domain, called by both"
        )
    names = dict(zip(used, tiers or used, strict=False))
    joining = [
        rung
        for rung in used
        if len(set(known[rung].values())) == 1 and all(rung in has for has in values.values())
    ]
    inner = used[: used.index(joining[0])] if joining else used
    domains = {
        node: {names[rung]: known[rung][paths[rung]] for rung in inner if rung in paths}
        for node, paths in placed.items()
    }
    network = Network(
        tuple(TierFacts(names[rung]) for rung in inner),
        domains,
        TierFacts("spine") if joining else None,
    )
    counts = {rung: len(set(known[rung].values())) for rung in used}
    return Ladder(tuple(used), counts, network, tuple(warnings))


def _count(rung: str, values: Mapping[str, Mapping[str, str]]) -> int:
    return len({has[rung] for has in values.values() if rung in has})


def _rising(rungs: Sequence[str], values: Mapping[str, Mapping[str, str]]) -> bool:
    counts = [_count(rung, values) for rung in rungs]
    return all(low <= high for low, high in pairwise(counts)) and counts != counts[::-1]


def _holds(rungs: Sequence[str], values: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether each value lies in one value of the next rung."""
    return all(_split(low, high, values) is None for low, high in pairwise(rungs))


def _split(low: str, high: str, values: Mapping[str, Mapping[str, str]]) -> tuple[str, str] | None:
    """Two nodes of one value at `low` and two at `high`; None where there are none."""
    first: dict[str, str] = {}
    for node, has in values.items():
        if low in has and high in has:
            known = first.setdefault(has[low], node)
            if values[known][high] != has[high]:
                return known, node
    return None


def _refuse_split(rungs: Sequence[str], values: Mapping[str, Mapping[str, str]]) -> None:
    for low, high in pairwise(rungs):
        pair = _split(low, high, values)
        if pair is not None:
            a, b = pair
            raise NotNested(
                f"{low} {values[a][low]!r} lies in {high} {values[a][high]!r} by {a} and in "
                f"{values[b][high]!r} by {b}",
                pair,
            )


def _paths(rungs: Sequence[str], has: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The value at each rung with those at all rungs outside of it, the outermost first."""
    found: dict[str, tuple[str, ...]] = {}
    path: tuple[str, ...] = ()
    for rung in reversed(rungs):
        if rung in has:
            path = (*path, has[rung])
            found[rung] = path
    return found


def _called(
    rungs: Sequence[str], placed: Mapping[str, Mapping[str, tuple[str, ...]]]
) -> dict[str, dict[tuple[str, ...], str]]:
    """Names of the domains of each rung: the value, with the outer ones where needed."""
    found: dict[str, dict[tuple[str, ...], str]] = {}
    for rung in rungs:
        paths = dict.fromkeys(has[rung] for has in placed.values() if rung in has)
        sharing: dict[str, int] = {}
        for path in paths:
            sharing[path[-1]] = sharing.get(path[-1], 0) + 1
        found[rung] = {}
        for path in paths:
            found[rung][path] = "/".join(path[-2:]) if sharing[path[-1]] > 1 else path[-1]
        if len(set(found[rung].values())) < len(paths):
            found[rung] = {path: "/".join(path) for path in paths}
    return found
