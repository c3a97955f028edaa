"""What operators are told of the network's health: each change once, and recovery as well."""

from __future__ import annotations

import pytest
from railweave.placement.domains import Domain
from railweave.placement.inference.health import Between, Finding, Health, Subject, Symptom
from railweave.scheduler.health_news import News, clock, news, steadied

DOMAINS = {f"n{i}": {"leaf": f"l{i // 2}"} for i in range(6)}


def bad(subject: Subject, factor: float = 0.5, health: Health = Health.DEGRADED) -> Finding:
    return Finding(subject, health, Symptom.BANDWIDTH, 1000.0, factor, 3)


def pairs(found: list[News]) -> list[tuple[object, bool]]:
    return [(each.finding.subject, each.over) for each in found]


def test_what_is_found_is_told_once_and_its_end_as_well() -> None:
    first, known = news([], [bad("n0")], DOMAINS)
    assert pairs(first) == [("n0", False)]
    assert first[0].kind == "network_bad"
    assert first[0].message == f"node n0: bandwidth at 50% of usual since {clock(1000.0)}"
    again, known = news(known, [bad("n0", 0.42)], DOMAINS)
    assert again == [] and known[0].factor == 0.42
    last, known = news(known, [], DOMAINS)
    assert pairs(last) == [("n0", True)] and known == []
    assert last[0].kind == "network_well"
    assert last[0].message.startswith("well again: node n0: bandwidth at 42% of usual since ")


def test_a_part_that_gets_worse_is_told_again() -> None:
    _, known = news([], [bad("n0")], DOMAINS)
    worse, _ = news(known, [bad("n0", 0.0, Health.DOWN)], DOMAINS)
    assert pairs(worse) == [("n0", False)] and "down since" in worse[0].message


def test_paths_that_turn_out_to_be_one_nodes_fault_are_not_taken_back() -> None:
    path = ("n0", "n3")
    first, known = news([], [bad(path)], DOMAINS)
    assert pairs(first) == [(path, False)]
    then, known = news(known, [bad("n0")], DOMAINS)
    assert pairs(then) == [("n0", False)]
    assert [each.subject for each in known] == ["n0"]


def test_a_node_is_well_only_when_none_of_its_paths_is_bad_any_more() -> None:
    _, known = news([], [bad("n0")], DOMAINS)
    less, known = news(known, [bad(("n0", "n3"))], DOMAINS)
    assert less == [] and [each.subject for each in known] == ["n0"]
    last, known = news(known, [bad(("n1", "n3"))], DOMAINS)
    assert pairs(last) == [(("n1", "n3"), False), ("n0", True)]


def test_links_of_a_domain_take_the_place_of_its_nodes() -> None:
    _, known = news([], [bad("n2"), bad("n4")], DOMAINS)
    then, known = news(known, [bad(Domain("leaf", "l1"))], DOMAINS)
    assert pairs(then) == [(Domain("leaf", "l1"), False), ("n4", True)]


def test_a_slow_node_is_told_of_beside_slow_links_of_all() -> None:
    everywhere = bad(Between("spine", "spine"))
    _, known = news([], [everywhere], DOMAINS)
    then, _ = news(known, [everywhere, bad("n0")], DOMAINS)
    assert pairs(then) == [("n0", False)]


def test_rails_are_told_apart() -> None:
    one = Finding("n0", Health.DOWN, Symptom.LOSS, 0.0, 0.0, rail=1)
    two = Finding("n0", Health.DOWN, Symptom.LOSS, 0.0, 0.0, rail=2)
    _, known = news([], [one], DOMAINS)
    then, _ = news(known, [two], DOMAINS)
    assert [(each.finding.rail, each.over) for each in then] == [(2, False), (1, True)]


def test_a_factor_that_wobbles_stays_as_it_was() -> None:
    before = (bad("n0", 0.52),)
    assert steadied(before, [bad("n0", 0.48)]) == before
    assert steadied(before, [bad("n0", 0.40)])[0].factor == 0.40
    assert steadied(before, [bad("n0", 0.50, Health.FLAPPING)])[0].factor == 0.50
    assert steadied([], [bad("n1", 0.5)]) == (bad("n1", 0.5),)


@pytest.mark.parametrize(
    "subject", ["n0", ("n0", "n1"), Domain("leaf", "l0"), Between("spine", "spine")]
)
def test_a_finding_survives_plain_data(subject: Subject) -> None:
    found = Finding(subject, Health.FLAPPING, Symptom.LOSS, 5.0, 0.25, 7, rail=3)
    again = Finding.from_data(found.to_data())
    assert again == found and type(again.subject) is type(subject)
