"""Slurm's topology.conf: trees, blocks and rings as Slurm reads them, and what is wrong by line."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from railweave.placement import InvalidInput
from railweave.placement.importers.facts import Facts
from railweave.placement.importers.hostlists import HostlistError, expanded, folded
from railweave.placement.importers.registry import read_source, recognised
from railweave.placement.importers.source import Source

TREE = """\
# two pods
SwitchName=core Switches=pod[1,2]
SwitchName=pod1 Switches=tor[01-02]
switchname=pod2 switches=tor03 LinkSpeed=100
SwitchName=tor01 Nodes=n[001-003]
SwitchName=tor02 Nodes=n004,n[005-006]   # the second row
SwitchName=tor03 \\
  Nodes="n[007-008]"
"""


def facts_of(text: str) -> Facts:
    source = Source.of_text("topology.conf", text)
    importer = recognised(source)
    assert importer is not None and importer.name == "slurm-topology-conf"
    return read_source(source)


def refusal(text: str) -> str:
    with pytest.raises(InvalidInput) as caught:
        facts_of(text)
    return str(caught.value)


def domains(facts: Facts, tier: str) -> dict[str, str]:
    assert facts.network is not None
    return {node: has[tier] for node, has in facts.network.domains.items()}


def test_a_tree_gives_its_tiers_without_the_root_that_joins_all() -> None:
    facts = facts_of(TREE)
    assert facts.network is not None and facts.network.spine is not None
    assert [tier.name for tier in facts.network.tiers] == ["leaf", "pod"]
    assert facts.network.domains["n003"] == {"leaf": "tor01", "pod": "pod1"}
    assert facts.network.domains["n007"] == {"leaf": "tor03", "pod": "pod2"}
    assert facts.summary["nodes"] == 8
    assert facts.summary["switches"] == 6
    assert facts.summary["switches_by_tier"] == [3, 2, 1]
    assert facts.summary["roots"] == ["core"]
    assert facts.warnings == ()


def test_no_speed_is_made_up() -> None:
    network = facts_of(TREE).network
    assert network is not None
    assert all(tier.bytes_per_s is None for tier in (*network.tiers, network.spine) if tier)


def test_trees_that_nothing_joins_have_no_spine() -> None:
    text = (
        "SwitchName=a Switches=a1,a2\nSwitchName=a1 Nodes=n[1-4]\nSwitchName=a2 Nodes=n[5-6]\n"
        "SwitchName=b Nodes=n[7-8]\n"
    )
    facts = facts_of(text)
    assert facts.network is not None and facts.network.spine is None
    assert domains(facts, "pod") == {f"n{k}": "a" if k < 7 else "b" for k in range(1, 9)}
    assert facts.summary["tiers_of_root"] == {"a": 2, "b": 1}
    assert "more than 6 nodes cannot stay" in facts.warnings[0]


def test_one_switch_is_a_flat_cluster() -> None:
    facts = facts_of("SwitchName=s Nodes=n[1-3]")
    assert facts.network is not None and facts.network.tiers == ()
    assert any("flat" in warning for warning in facts.warnings)


def test_nodes_on_a_switch_with_child_switches_meet_there() -> None:
    facts = facts_of("SwitchName=top Switches=l Nodes=m[1-2]\nSwitchName=l Nodes=n[1-2]")
    assert domains(facts, "leaf") == {"n1": "l", "n2": "l", "m1": "top", "m2": "top"}
    assert any("both nodes and switches" in warning for warning in facts.warnings)


def test_leaves_with_the_same_nodes_are_rails_of_one_domain() -> None:
    rails = "".join(f"SwitchName=rail{r} Nodes=n[1-4]\n" for r in range(8))
    rails += "".join(f"SwitchName=rail{8 + r} Nodes=n[5-8]\n" for r in range(8))
    facts = facts_of(rails + "SwitchName=spine Switches=rail[0-15]\n")
    assert set(domains(facts, "leaf").values()) == {"rail0", "rail8"}
    assert facts.summary["switches"] == 17
    assert facts.warnings


def test_a_fat_tree_with_every_uplink_joins_what_its_spines_have_in_common() -> None:
    text = (
        "SwitchName=s1 Switches=l1,l2\nSwitchName=s2 Switches=l2,l3\nSwitchName=s3 Switches=l4\n"
        + "".join(f"SwitchName=l{k} Nodes=n{k}[0-1]\n" for k in range(1, 5))
    )
    facts = facts_of(text)
    pods = domains(facts, "pod")
    assert pods["n10"] == pods["n20"] == pods["n30"] != pods["n40"]
    assert any("line 2" in warning and "'l2'" in warning for warning in facts.warnings)


def test_comments_carry_the_real_names() -> None:
    facts = facts_of("# s.1=leaf-9\nSwitchName=s.1 Nodes=srv[1-2]\n")
    assert facts.summary["real_names"] == {"s.1": "leaf-9"}


def test_names_with_dots_and_brackets_at_their_end_are_lists() -> None:
    facts = facts_of(
        "SwitchName=sw.2 Switches=sw.1.[9-10]\nSwitchName=sw.1.9 Nodes=a.b.[1-2]\n"
        "SwitchName=sw.1.10 Nodes=c\n"
    )
    assert set(domains(facts, "leaf")) == {"a.b.1", "a.b.2", "c"}


def test_blocks_have_their_sizes_and_what_can_never_be_filled() -> None:
    facts = facts_of("BlockName=b1 Nodes=n[01-04]\nBlockName=b2 Nodes=n[05-07]\nBlockSizes=4,8,12")
    assert facts.summary["blocks"] == 2
    assert facts.summary["nodes_per_block"] == [3, 4]
    assert facts.summary["block_sizes"] == [4, 8, 12]
    assert domains(facts, "block")["n05"] == "b2"
    told = "\n".join(facts.warnings)
    assert "8, 12 can never be filled" in told
    assert "fewer nodes than the base size 4: b2" in told
    assert "8,12" in told


def test_a_file_whose_blocks_are_all_commented_out_is_refused_with_their_count() -> None:
    text = "#BlockName=b1 Nodes=n[1-9]\n#BlockName=b2 Nodes=n[10-18]\nBlockSizes=20\n"
    told = refusal(text)
    assert "no active block: 2 blocks of 9 nodes are commented out" in told
    assert "BlockSizes=20 alone" in told


def test_some_blocks_commented_out_are_a_warning() -> None:
    facts = facts_of("BlockName=a Nodes=n1\n#BlockName=b Nodes=n[2-4]\nBlockSizes=1\n")
    assert facts.summary["nodes"] == 1
    assert any("line 2" in warning and "3 nodes" in warning for warning in facts.warnings)


def test_rings_and_their_limit() -> None:
    facts = facts_of("RingName=r0 Nodes=n[1-8]\nRingName=r1 Nodes=n[9-30]\n")
    assert domains(facts, "ring")["n9"] == "r1"
    assert any("at most 16" in warning for warning in facts.warnings)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n1,n2\n", ("line 2", "'n1'", "line 1")),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a\n", ("line 1", "a > b > a")),
        ("SwitchName=a Switches=a Nodes=n1\n", ("line 1", "below themselves")),
        (
            "SwitchName=r Switches=a\nSwitchName=a Switches=b,c\nSwitchName=b Switches=a\n"
            "SwitchName=c Nodes=n1\n",
            ("below themselves", "a > b > a"),
        ),
        ("SwitchName=a Switches=b,c\nSwitchName=b Nodes=n1\n", ("line 1", "'c'", "nowhere")),
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n", ("line 2", "again", "line 1")),
        ("SwitchName=a Nodes=n[1-\n", ("line 1", "not closed")),
        ("SwitchName=a Nodes=n[3-1]\n", ("line 1", "goes down")),
        ("SwitchName=a Nodes=n[0-999999999]\n", ("line 1", "at most 262144")),
        ("SwitchName=a Nodes=n[0-999999][0-999999]\n", ("line 1", "at most")),
        ("SwitchName=a Nods=n1\n", ("line 1", "did you mean Nodes")),
        ("SwitchName=a Nodes=n1 Nodes=n2\n", ("line 1", "given twice")),
        ("SwitchName=a Nodes=n1\nBlockName=b SwitchName=c Nodes=n1\n", ("line 2", "one line")),
        ("SwitchName=a Nodes=n1\nthis is no line\n", ("line 2", "no key=value")),
        ("SwitchName=a Nodes=n1\nBlockSizes=4,x\n", ("line 2", "whole numbers")),
        ("BlockName=a Nodes=n1\nBlockName=b Nodes=n1\n", ("line 2", "'n1'", "line 1")),
        ("SwitchName=a Nodes=n1 \\", ("line 1", "file ends")),
        ("SwitchName=a[1-2] Nodes=n1\n", ("line 1", "name of one switch")),
        ("SwitchName=\n", ("line 1", "without a name")),
    ],
)
def test_what_cannot_be_used_is_refused_with_line_and_reason(
    text: str, told: tuple[str, ...]
) -> None:
    found = refusal(text)
    assert all(part in found for part in told), found


def test_lists_are_written_out_in_order_and_keep_their_zeros() -> None:
    assert expanded("a[08-10,3],b") == ["a08", "a09", "a10", "a3", "b"]
    assert expanded("r[1-2]n[01-02]x") == ["r1n01x", "r1n02x", "r2n01x", "r2n02x"]
    assert expanded("1101,[2-3]") == ["1101", "2", "3"]


@pytest.mark.parametrize("text", ["a[", "a]", "a[1[2]]", "a[x]", "a[]", ",a", "a,,b", "a b"])
def test_damaged_lists_are_refused(text: str) -> None:
    with pytest.raises(HostlistError):
        expanded(text)


names = st.builds(
    "{}{}{}".format,
    st.sampled_from(("n", "rack-", "a.b.", "x1-")),
    st.sampled_from(("", "0", "7", "07", "8", "08", "09", "10", "010", "99", "100")),
    st.sampled_from(("", "a")),
)


@settings(max_examples=40)
@given(st.lists(names, unique=True, min_size=1, max_size=40))
def test_a_folded_list_stands_for_the_same_names(found: list[str]) -> None:
    assert sorted(expanded(folded(found))) == sorted(found)


@st.composite
def trees(draw: st.DrawFn) -> dict[str, dict[str, list[str]]]:
    """Pods of leaves of nodes, each name once."""
    shape = draw(st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), max_size=4))
    return {
        f"pod{p}": {
            f"leaf{p}-{k}": [f"n{p}x{k}x{i:02d}" for i in range(count)]
            for k, count in enumerate(leaves)
        }
        for p, leaves in enumerate([[2, 1], *shape])
    }


@settings(max_examples=30)
@given(trees(), st.randoms(use_true_random=False))
def test_any_tree_written_out_is_read_back(
    tree: dict[str, dict[str, list[str]]], rng: random.Random
) -> None:
    lines = [f"SwitchName=root Switches={folded(tree)}"]
    for pod, leaves in tree.items():
        lines.append(f"SwitchName={pod} Switches={folded(leaves)}")
        lines += [f"SwitchName={leaf} Nodes={folded(has)}" for leaf, has in leaves.items()]
    rng.shuffle(lines)
    facts = facts_of("\n".join(lines))
    for pod, leaves in tree.items():
        for leaf, has in leaves.items():
            for node in has:
                assert facts.network is not None
                at = facts.network.domains[node]
                assert at["leaf"] == leaf
                assert at.get("pod", pod) == pod
