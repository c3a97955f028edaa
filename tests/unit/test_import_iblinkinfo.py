"""iblinkinfo and ibnetdiscover -p: each link once, ports that are down, names in any quotes."""

from __future__ import annotations

import pytest
from railweave.placement import InvalidInput
from railweave.placement.importers.facts import Facts
from railweave.placement.importers.registry import read_source, recognised
from railweave.placement.importers.source import Source

PORTS = """\
CA     5  1 0x0a00000000000001 4x HDR - SW     1  1 0x0b00000000000001 ( 'n1 mlx5_0' - 'leaf one ' )
CA     6  1 0x0a00000000000002 4x HDR - SW     1  2 0x0b00000000000001 ( 'n2 mlx5_0' - 'leaf one ' )
SW     1  1 0x0b00000000000001 4x HDR - CA     5  1 0x0a00000000000001 ( 'leaf one ' - 'n1 mlx5_0' )
SW     1  3 0x0b00000000000001 4x HDR - SW     2  1 0x0b00000000000002 ( 'leaf one ' - 'top' )
SW     1  4 0x0b00000000000001 4x ???                                    'leaf one '
SW     3  9 0x0b00000000000003 1x SDR                                    no quotes here
"""
SECTIONS = """\
CA: n1 mlx5_0:
      0x0a00000000000001      5    1[  ] ==( 4X        53.125 Gbps Active/  LinkUp)==>       1    1[  ] "MF0;leaf:QM8700/U1" ( )
CA: n2 mlx5_0:
      0x0a00000000000002      6    1[  ] ==( 4X      25.78125 Gbps Active/  LinkUp)==>       1    2[  ] "MF0;leaf:QM8700/U1" ( Could be 53.125 Gbps)
Switch: 0x0b00000000000001 MF0;leaf:QM8700/U1:
           1    1[  ] ==( 4X        53.125 Gbps Active/  LinkUp)==>       5    1[  ] "n1 mlx5_0" ( )
           1    2[  ] ==( 4X      25.78125 Gbps Active/  LinkUp)==>       6    1[  ] "n2 mlx5_0" ( Could be 53.125 Gbps)
           1    3[  ] ==(                Down/ Polling)==>             [  ] "" ( )
"""  # noqa: E501


def facts_of(text: str) -> Facts:
    source = Source.of_text("links.txt", text)
    importer = recognised(source)
    assert importer is not None and importer.name == "iblinkinfo"
    return read_source(source)


def test_links_told_from_both_ends_count_once() -> None:
    facts = facts_of(PORTS)
    assert facts.summary["links"] == 3
    assert facts.summary["links_to_hosts"] == 2
    assert facts.summary["links_by_speed"] == {"4xHDR": 3}
    assert facts.summary["switch_records"] == 2 and facts.summary["switches_only_referred_to"] == 1
    assert facts.summary["ports_down"] == ["1/4 4x ???", "3/9 1x SDR"]
    assert [one["name"] for one in facts.summary["switch_list"]] == [
        "leaf one",
        "top",
        "no quotes here",
    ]
    assert facts.network is not None and set(facts.network.domains) == {"n1", "n2"}
    assert facts.network.rails == 1


def test_sections_of_iblinkinfo_are_joined_by_their_addresses() -> None:
    facts = facts_of(SECTIONS)
    assert facts.summary["links"] == 2
    assert facts.summary["links_by_speed"] == {"4xEDR": 1, "4xHDR": 1}
    assert facts.summary["links_degraded"] == 1
    assert facts.summary["ports_down"] == ["1/3 Polling"]
    assert facts.summary["switch_list"][0]["guid"] == "0x0b00000000000001"
    assert any("Could be 53.125" in warning for warning in facts.warnings)
    assert set(facts.aliases) == {"0a00000000000001", "0a00000000000002"}


def test_ports_without_links_make_no_fabric_but_are_told() -> None:
    name = "Infiniscale-IV Mellanox Technologies"
    facts = facts_of(f"SW 479 22 0x0002c90200000001 4x QDR      {name}\n")
    assert facts.network is None
    assert facts.summary["switch_list"][0]["name"] == name
    assert facts.not_alone is not None and "479/22 4x QDR" in facts.not_alone.found


def test_one_guid_at_two_addresses_counts_as_two_with_a_warning() -> None:
    facts = facts_of(
        PORTS.replace("CA     6  1 0x0a00000000000002", "CA     6  1 0x0a00000000000001")
    )
    assert facts.summary["cas"] == 2
    assert any("at lid 5 and at lid 6" in warning for warning in facts.warnings)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (PORTS + "nonsense\n", "line 7"),
        (
            PORTS
            + "SW     1  1 0x0b00000000000001 4x HDR - SW 2 7 0x0b00000000000002 ( '' - '' )\n",
            "line 7: port 1 of 'leaf one' is joined to port 7",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_line(text: str, told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        facts_of(text)
    assert told in str(caught.value)
