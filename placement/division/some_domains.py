"""Taking a few domains out of a division, so that what they hold can be divided among them anew."""

from __future__ import annotations

import numpy as np

from ..jobs.index import PAIRS, Floats, Ints
from .contract_local import contracted
from .local import Local

_WIDTHS = (2, 2, 3, 4, 5)
_LEAST_TIE = 0.05
"""Part of the strongest tie that every domain with room counts as tied, an empty one too."""


def tied_domains(local: Local, where: Ints, chance: np.random.Generator) -> Ints:
    """Some domains, ascending: one that holds units, and others drawn by what they say to it."""
    tie = _ties(local, where)
    used = np.unique(where)
    chosen = [int(chance.choice(used))]
    for _ in range(int(chance.choice(_WIDTHS)) - 1):
        pull = tie[chosen].sum(axis=0)
        pull += _LEAST_TIE * float(pull.max())
        pull[chosen] = 0.0
        pull[local.room == 0] = 0.0
        total = float(pull.sum())
        if total == 0.0:
            break
        chosen.append(int(chance.choice(len(pull), p=pull / total)))
    return np.sort(np.array(chosen, dtype=np.int64))


def _ties(local: Local, where: Ints) -> Floats:
    """`[domain, domain]`: about what the units of one say to those of the other."""
    domains = len(local.room)
    owner = np.repeat(where, np.diff(local.unit_link_start))
    pair = owner * domains + where[local.unit_link]
    found = np.bincount(pair, weights=local.unit_link_weight, minlength=domains**2)
    tie: Floats = found.reshape(domains, domains).astype(np.float64)
    nets = len(local.net_form)
    net_of = np.repeat(np.arange(nets), np.diff(local.net_start))
    held = np.bincount(
        net_of * domains + where[local.net_member],
        weights=local.net_ranks,
        minlength=nets * domains,
    ).reshape(nets, domains)
    held[local.net_form != PAIRS] = held[local.net_form != PAIRS] > 0
    tie += (held * local.net_weight[:, None]).T @ held
    np.fill_diagonal(tie, 0.0)
    return tie


def within_domains(local: Local, where: Ints, domains: Ints) -> tuple[Local, Ints]:
    """The problem of dividing what some domains hold among them, and its units in the whole one.

    Domain i of it is `domains[i]`. Whatever its divisions cost less, the whole costs less.
    """
    held = np.isin(where, domains)
    units = np.flatnonzero(held)
    number = np.full(len(where), -1, dtype=np.int64)
    number[units] = np.arange(len(units))
    nets = len(local.net_form)
    net_of = np.repeat(np.arange(nets), np.diff(local.net_start))
    here = held[local.net_member]
    inside = np.bincount(net_of[here], minlength=nets)
    # A ring with members in other domains stays open whatever is done in these.
    partly = inside < np.diff(local.net_start)
    owner = np.repeat(np.arange(len(where)), np.diff(local.unit_link_start))
    both = held[owner] & held[local.unit_link]
    part = local._replace(
        size=local.size[units],
        kind=local.kind[units],
        room=local.room[domains],
        kind_room=local.kind_room[domains],
        net_open=np.where(partly, 1, local.net_open),
        net_start=_starts(inside),
        net_member=number[local.net_member[here]],
        net_ranks=local.net_ranks[here],
        unit_link_start=_starts(np.bincount(number[owner[both]], minlength=len(units))),
        unit_link=number[local.unit_link[both]],
        unit_link_weight=local.unit_link_weight[both],
    )
    return contracted(part, np.arange(len(units)), len(units)), units


def _starts(count: Ints) -> Ints:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(count)]).astype(np.int64)
