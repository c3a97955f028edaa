"""What is told of the health of the network, and when: each change once, and no noise. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..placement.domains import Domain
from ..placement.inference.health import Between, Finding, Subject

_SAME = 0.1
"""By how much what is left of a part must change before it counts as another finding."""

Domains: TypeAlias = Mapping[str, Mapping[str, str]]
"""By node its domain at each tier but the last."""


@dataclass(frozen=True)
class News:
    """Something to tell. over: whether the part is well again, or not well."""

    finding: Finding
    over: bool

    @property
    def kind(self) -> str:
        """The event's kind."""
        return "network_well" if self.over else "network_bad"

    @property
    def message(self) -> str:
        """The event in words."""
        if self.over:
            return f"well again: {told(self.finding)}"
        return told(self.finding)


def told(finding: Finding) -> str:
    """A finding in words: what, how, and since when, in local time."""
    return f"{finding.named}: {since(finding)}"


def since(finding: Finding) -> str:
    """How a part is, and since when, in local time."""
    return f"{finding.how} since {clock(finding.since_s)}"


def reason_of(finding: Finding) -> str:
    """Why a node that a finding leaves out of placements is not used."""
    return f"its network: {since(finding)}"


def clock(time_s: float) -> str:
    """A time as people read it, local."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_s))


def steadied(before: Iterable[Finding], found: Iterable[Finding]) -> tuple[Finding, ...]:
    """The findings with the factors they had before, where these have hardly changed."""
    known = {_key(each): each for each in before}
    steady = []
    for each in found:
        old = known.get(_key(each))
        same = old and old.health is each.health and abs(old.factor - each.factor) <= _SAME
        steady.append(replace(each, factor=old.factor) if old and same else each)
    return tuple(steady)


def news(
    known: Sequence[Finding], found: Sequence[Finding], domains: Domains
) -> tuple[list[News], list[Finding]]:
    """What to tell of what is found now, and what is then known.

    known: what was told and not taken back. A path that is bad where more of it was told already is
    not told again; a part is well again only when nothing around it is bad any more.
    """
    bad, over, kept = [], [], []
    before = {_key(each): each for each in known}
    now = {_key(each): each for each in found}
    for key, each in now.items():
        old = before.get(key)
        if old is not None:
            if old.health is not each.health:
                bad.append(News(each, over=False))
            kept.append(each)
        elif _wide(each) or not any(_wide(one) and _meet(one, each, domains) for one in known):
            bad.append(News(each, over=False))
            kept.append(each)
    for key, each in before.items():
        if key in now:
            continue
        around = [one for one in found if (_wide(one) or _wide(each)) and _meet(each, one, domains)]
        if not around:
            over.append(News(each, over=True))
        elif not any(_wide(one) for one in around):
            # What is left of it are single paths.
            kept.append(each)
    return [*bad, *over], kept


def _key(finding: Finding) -> tuple[type, Subject, int | None]:
    return type(finding.subject), finding.subject, finding.rail


def _wide(finding: Finding) -> bool:
    """Whether it is of more than a path."""
    return type(finding.subject) is not tuple


def _meet(one: Finding, other: Finding, domains: Domains) -> bool:
    """Whether two findings have a node in common, on one rail."""
    apart = None not in (one.rail, other.rail) and one.rail != other.rail
    return not apart and bool(_nodes(one.subject, domains) & _nodes(other.subject, domains))


def _nodes(subject: Subject, domains: Domains) -> set[str]:
    if isinstance(subject, str):
        return {subject}
    if isinstance(subject, Domain | Between):
        every = isinstance(subject, Between) and subject.tier == subject.name
        return {n for n, has in domains.items() if every or has.get(subject.tier) == subject.name}
    return set(subject)
