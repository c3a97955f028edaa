"""Tables of hosts with the switches above: labels that repeat are told apart by what is above."""

from __future__ import annotations

import pytest
from railweave.placement import InvalidInput
from railweave.placement.importers.facts import Facts
from railweave.placement.importers.registry import read_source, recognised
from railweave.placement.importers.source import Source


def facts_of(text: str) -> Facts:
    source = Source.of_text("topo.csv", text)
    importer = recognised(source)
    assert importer is not None and importer.name == "lingjun-csv"
    return read_source(source)


def table(pods: int = 2, tors: int = 3, hosts: int = 2) -> str:
    rows = [
        f"h{p}{t}{k},G1,P{p},S{t}" for p in range(pods) for t in range(tors) for k in range(hosts)
    ]
    return "\n".join(["ip,DSW,PSW,ASW", *rows]) + "\n"


def test_a_top_of_rack_label_counts_within_the_switch_above_it() -> None:
    facts = facts_of(table())
    assert facts.network is not None and facts.network.spine is not None
    assert facts.network.domains["h121"] == {"asw": "P1/S2", "psw": "P1"}
    assert facts.summary["labels_of_tier"] == {"asw": 3, "psw": 2, "dsw": 1}
    assert facts.summary["domains_of_tier"] == {"asw": 6, "psw": 2, "dsw": 1}
    assert facts.summary["tors_by_hosts"] == {2: 6}
    assert any("repeat" in warning for warning in facts.warnings)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (table() + "h000,G1,P0,S0\n", "line 14: host 'h000' is there again, first in line 2"),
        (table() + "x,G1\n", "line 14: 2 columns under a header of 4"),
        (table().replace("ip,", "serial,"), "no column of hosts"),
        ("ip,DSW,PSW,ASW\n", "no hosts"),
    ],
)
def test_damaged_tables_are_refused_with_the_line(text: str, told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        facts_of(text)
    assert told in str(caught.value)
