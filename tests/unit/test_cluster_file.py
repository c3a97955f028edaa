"""The cluster file: what it accepts, and how every fault is told with its place and its fix."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from railweave.placement import Cluster, InvalidInput, Node, NodeState, Problem, Tier

GOOD: dict[str, Any] = {
    "format": "railweave.cluster/1",
    "name": "lab",
    "tiers": [
        {"name": "tor", "bandwidth": 25e9, "latency": 2e-6},
        {"name": "pod", "bandwidth": 25e9, "latency": 4e-6, "oversubscription": 2},
        {"name": "spine", "bandwidth": 25e9, "latency": 8e-6},
    ],
    "rails": 8,
    "nodes": [
        {
            "name": "n0",
            "accelerator": "A100-80G",
            "devices": 8,
            "domains": {"tor": "t0", "pod": "p0"},
        },
        {
            "name": "n1",
            "accelerator": "A100-80G",
            "devices": 8,
            "domains": {"tor": "t0", "pod": "p0"},
            "state": "busy",
            "free_devices": [0, 3],
        },
    ],
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """GOOD with the value at a place such as `nodes.1.devices` replaced (or removed: KeyError)."""
    data = copy.deepcopy(GOOD)
    *way, last = path.split(".")
    target: Any = data
    for step in way:
        target = target[int(step)] if isinstance(target, list) else target[step]
    key = int(last) if isinstance(target, list) else last
    if value is KeyError:
        del target[key]
    else:
        target[key] = value
    return data


def problems(data: Any) -> list[Problem]:
    with pytest.raises(InvalidInput) as caught:
        Cluster.parse(data)
    assert all(problem.found and problem.fix for problem in caught.value.problems)
    return list(caught.value.problems)


def test_a_good_file_is_read_with_its_defaults() -> None:
    cluster = Cluster.parse(GOOD)
    assert cluster.tier_names == ("node", "tor", "pod", "spine")
    assert cluster.spine == "spine"
    assert (cluster.cross_rail, cluster.tiers[0].oversubscription) == ("nvlink", 1.0)
    assert cluster.node("n0").state is NodeState.FREE
    assert cluster.node("n0").usable_devices == tuple(range(8))
    assert cluster.node("n1").usable_devices == ()


def test_only_the_free_devices_of_a_free_node_are_usable() -> None:
    node = Node(name="n", accelerator="V100", devices=4, free_devices=(3, 1))
    assert node.usable_devices == (1, 3)


@pytest.mark.parametrize(
    ("path", "value", "place", "found", "fix"),
    [
        ("name", KeyError, "name", "missing", "add it"),
        ("tiers", [], "tiers", "found []", "at least 1 item"),
        ("tiers", "spine", "tiers", "found 'spine'", "tuple"),
        ("tiers.0.name", "node", "tiers[0].name", "the tier inside a node", "another name"),
        ("tiers.1.name", "tor", "tiers[1].name", "duplicate name 'tor', also tiers[0]", "rename"),
        ("tiers.0.bandwidth", 0, "tiers[0].bandwidth", "found 0", "greater than 0"),
        ("tiers.0.bandwidth", -1.0, "tiers[0].bandwidth", "found -1.0", "greater than 0"),
        ("tiers.0.bandwidth", math.nan, "tiers[0].bandwidth", "found nan", "finite"),
        ("tiers.0.bandwidth", math.inf, "tiers[0].bandwidth", "found inf", "finite"),
        ("tiers.0.bandwidth", True, "tiers[0].bandwidth", "found True", "a number, not true"),
        ("tiers.0.bandwidth", 1e31, "tiers[0].bandwidth", "found 1e+31", "less than or equal"),
        ("tiers.0.bandwidth", "fast", "tiers[0].bandwidth", "found 'fast'", "valid number"),
        ("tiers.2.latency", -1e-6, "tiers[2].latency", "found -1e-06", "greater than or equal"),
        ("tiers.2.latency", math.nan, "tiers[2].latency", "found nan", "finite"),
        ("tiers.1.oversubscription", 0.5, "tiers[1].oversubscription", "found 0.5", "equal to 1"),
        ("tiers.1.oversubscription", math.nan, "tiers[1].oversubscription", "found nan", "finite"),
        ("tiers.1.bandwith", 1, "tiers[1].bandwith", "unknown key", "did you mean 'bandwidth'?"),
        ("rails", 0, "rails", "found 0", "greater than or equal to 1"),
        ("rails", 2.5, "rails", "found 2.5", "valid integer"),
        ("rails", True, "rails", "found True", "a number, not true"),
        ("cross_rail", "pxn", "cross_rail", "found 'pxn'", "'nvlink' or 'spine'"),
        ("nodes", {}, "nodes", "found {}", "tuple"),
        ("nodes.1", 7, "nodes[1]", "found 7", "dictionary"),
        ("nodes.1.name", "n0", "nodes[1].name", "duplicate name 'n0', also nodes[0]", "rename"),
        ("nodes.1.name", "", "nodes[1].name", "found ''", "a name of 1 to 1000"),
        ("nodes.1.name", "a\nb", "nodes[1].name", "found 'a\\nb'", "printable"),
        ("nodes.1.name", " n1", "nodes[1].name", "found ' n1'", "without spaces at its ends"),
        ("nodes.1.name", 1.10, "nodes[1].name", "found 1.1", 'put quotes around it ("1.1")'),
        ("nodes.1.name", True, "nodes[1].name", "found True", "put quotes around it"),
        ("nodes.1.name", None, "nodes[1].name", "found None", "valid string"),
        ("nodes.1.devices", -1, "nodes[1].devices", "found -1", "greater than or equal to 0"),
        ("nodes.1.devices", 10**9, "nodes[1].devices", "found 1000000000", "equal to 4096"),
        ("nodes.1.devices", True, "nodes[1].devices", "found True", "a number, not true"),
        ("nodes.1.accelerator", KeyError, "nodes[1].accelerator", "missing", "add it"),
        ("nodes.1.state", "down", "nodes[1].state", "found 'down'", "'drained'"),
        (
            "nodes.1.free_devices",
            [8],
            "nodes[1].free_devices[0]",
            "device index 8 out of range",
            "n1 has 0 to 7",
        ),
        (
            "nodes.1.free_devices",
            [0, -1],
            "nodes[1].free_devices[1]",
            "device index -1 out of range",
            "n1 has 0 to 7",
        ),
        (
            "nodes.1.free_devices",
            [3, 3],
            "nodes[1].free_devices[1]",
            "device index 3 given twice",
            "list it once",
        ),
        ("nodes.1.free_devices", [True], "nodes[1].free_devices[0]", "found True", "integer"),
        ("nodes.1.free_devices", 3, "nodes[1].free_devices", "found 3", "tuple"),
        (
            "nodes.1.domains.rack",
            "r1",
            "nodes[1].domains.rack",
            "unknown tier 'rack'",
            "tiers below the last are: tor, pod",
        ),
        (
            "nodes.1.domains.tors",
            "r1",
            "nodes[1].domains.tors",
            "unknown tier 'tors'",
            "did you mean 'tor'?",
        ),
        (
            "nodes.1.domains.spine",
            "s",
            "nodes[1].domains.spine",
            "a domain at the last tier",
            "remove it",
        ),
        (
            "nodes.1.domains.tor",
            KeyError,
            "nodes[1].domains",
            "no domain at tier 'tor'",
            "name its tor; where it is unknown, give it one of its own",
        ),
        (
            "nodes.1.domains.pod",
            "p1",
            "nodes[1].domains.pod",
            "tor 't0' lies in pod 'p1' here and in 'p0' at nodes[0] (n0)",
            "put all of tor 't0' into one pod, or rename one tor",
        ),
        ("nodes.1.domains", ["t0"], "nodes[1].domains", "found ['t0']", "dictionary"),
        (
            "accelerators",
            {"mine": {"memory_bytes": 1, "peak_flops": {"bf16": -1}, "memory_bandwidth": 1}},
            "accelerators.mine.peak_flops.bf16",
            "found -1",
            "greater than 0",
        ),
        ("node", [], "node", "unknown key", "did you mean 'nodes'?"),
        ("zzz", 1, "zzz", "unknown key", "x-"),
    ],
)
def test_a_fault_is_told_with_its_place_and_its_fix(
    path: str, value: Any, place: str, found: str, fix: str
) -> None:
    matching = [p for p in problems(changed(path, value)) if p.place == place]
    assert matching, problems(changed(path, value))
    assert any(found in p.found and fix in p.fix for p in matching), matching


def test_every_fault_of_a_file_is_told_at_once() -> None:
    data = changed("nodes.1.name", "n0")
    data["tiers"][1]["name"] = "tor"
    data["nodes"][0]["free_devices"] = [9, 9]
    places = [problem.place for problem in problems(data)]
    assert {"tiers[1].name", "nodes[1].name", "nodes[0].free_devices[0]"} <= set(places)


def test_domains_may_skip_no_level_when_they_nest() -> None:
    data = changed("nodes.1.domains", {"tor": "t1", "pod": "p0"})
    assert Cluster.parse(data).node("n1").domains["tor"] == "t1"


def test_a_scale_up_tier_is_nearer_than_any_network_tier() -> None:
    [problem] = problems(changed("tiers.1.scale_up", True))
    assert (problem.place, problem.fix) == (
        "tiers[1]",
        "put scale-up tiers first: they are nearer than any NIC",
    )
    assert Cluster.parse(changed("tiers.0.scale_up", True)).tiers[0].scale_up


def test_rails_that_meet_only_at_the_spine_contradict_a_scale_up_tier() -> None:
    data = changed("tiers.0.scale_up", True)
    data["cross_rail"] = "spine"
    [problem] = problems(data)
    assert problem.place == "cross_rail"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "holds nothing, not an object; start with format: railweave.cluster/1"),
        ([], "holds list, not an object"),
        ("", "holds nothing, not an object"),
        ("just text", "holds str, not an object"),
        ({}, "format: no format; this must be 'railweave.cluster/1'"),
        ({"format": "railweave.pcg/1"}, "format: format 'railweave.pcg/1'; this must be"),
        ({"format": [[[[[[]]]]]]}, "format: format [[[[...]]]]; this must be"),
        ({"format": "railweave.cluster/1", 3: 4}, "the key 3; a key must be text"),
    ],
)
def test_what_is_no_cluster_file_is_refused(data: Any, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Cluster.parse(data)
    assert message in str(caught.value)


def test_a_wrong_cluster_made_in_python_explains_itself_too() -> None:
    tier = Tier(name="spine", bandwidth=1e9, latency=0)
    node = Node(name="n", accelerator="V100", devices=1)
    with pytest.raises(InvalidInput, match=r"nodes\[1\].name: duplicate name 'n'"):
        Cluster(name="c", tiers=(tier,), nodes=(node, node))
    with pytest.raises(InvalidInput, match="nodes: missing"):
        Cluster(name="c", tiers=(tier,))  # type: ignore[call-arg]


def test_notes_may_stand_under_keys_that_start_with_x() -> None:
    data = copy.deepcopy(GOOD)
    data["x-source"] = {"anything": [1, 2]}
    data["tiers"][0]["x-speed"] = "from the data sheet"
    data["nodes"][0]["x-rack"] = 7
    data["accelerators"] = {
        "mine": {
            "memory_bytes": 1,
            "peak_flops": {"bf16": 1},
            "memory_bandwidth": 1,
            "scale_up_bandwidth": 0,
            "x-vendor": "us",
        }
    }
    assert Cluster.parse(data).accelerator("mine").memory_bytes == 1


def test_accelerators_come_from_the_file_or_the_catalog() -> None:
    cluster = Cluster.parse(GOOD)
    assert cluster.accelerator("A100-80G").memory_bytes == 80 * 2**30
    with pytest.raises(InvalidInput, match="no numbers for 'B100'; add it there, or use one of"):
        cluster.accelerator("B100")


@pytest.mark.parametrize("suffix", [".yaml", ".yml", ".json"])
def test_a_saved_cluster_is_loaded_as_it_was(tmp_path: Path, suffix: str) -> None:
    cluster = Cluster.parse(changed("tiers.0.scale_up", True))
    path = tmp_path / f"cluster{suffix}"
    cluster.save(path)
    assert Cluster.load(path) == cluster
    assert list(tmp_path.iterdir()) == [path]


def test_the_saved_form_has_no_keys_that_the_contract_does_not_know() -> None:
    assert set(Cluster.parse(GOOD).to_data()["tiers"][0]) == {
        "name",
        "bandwidth",
        "latency",
        "oversubscription",
    }


def yaml_cluster(node: str, tor: str = "t0", bandwidth: str = "25e9") -> str:
    return f"""
format: railweave.cluster/1
name: lab
tiers:
- {{name: tor, bandwidth: {bandwidth}, latency: 1e-6}}
- {{name: spine, bandwidth: 25.0e+9, latency: 0.000002}}
nodes:
- {{name: {node}, accelerator: V100, devices: 1, domains: {{tor: {tor}}}}}
"""


@pytest.mark.parametrize(
    "name", ["0010", "007", "12:30", "no", "on", "0x1f", "1_000", "2024-01-02"]
)
def test_a_yaml_name_stays_the_text_it_is(name: str) -> None:
    cluster = Cluster.parse(yaml_cluster(name, tor=name))
    assert cluster.nodes[0].name == name
    assert cluster.nodes[0].domains["tor"] == name


@pytest.mark.parametrize("name", ["12", "0", "-3"])
def test_a_whole_number_is_a_name(name: str) -> None:
    assert Cluster.parse(yaml_cluster(name)).nodes[0].name == name


@pytest.mark.parametrize("name", ["1.10", "1e3", "true"])
def test_a_yaml_name_that_is_another_value_must_be_quoted(name: str) -> None:
    with pytest.raises(InvalidInput, match="put quotes around it"):
        Cluster.parse(yaml_cluster(name))
    assert Cluster.parse(yaml_cluster(f'"{name}"')).nodes[0].name == name


@pytest.mark.parametrize("number", ["25e9", "25.e9", "2.5e+10", "25000000000", '"25e9"'])
def test_a_yaml_number_may_be_written_in_any_usual_way(number: str) -> None:
    assert Cluster.parse(yaml_cluster("n", bandwidth=number)).tiers[0].bandwidth == 25e9


@pytest.mark.parametrize(
    "name", ["1e9", "no", "0010", "~", "<<", "null", "12:30", "'\"", "é", "1.5"]
)
def test_a_name_that_looks_like_something_else_survives_a_yaml_file(
    tmp_path: Path, name: str
) -> None:
    cluster = Cluster.parse(changed("nodes.1.name", name))
    cluster.save(tmp_path / "c.yaml")
    assert Cluster.load(tmp_path / "c.yaml").nodes[1].name == name


def test_yaml_anchors_and_merges_may_be_used() -> None:
    text = """
format: railweave.cluster/1
name: lab
tiers: [{name: spine, bandwidth: 1e9, latency: 0}]
nodes:
- &kind {name: n0, accelerator: V100, devices: 4}
- {<<: *kind, name: n1}
"""
    nodes = Cluster.parse(text).nodes
    assert [(node.name, node.devices) for node in nodes] == [("n0", 4), ("n1", 4)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("format: a\nformat: b\n", "line 2 column 1: not YAML: the key 'format' is given twice"),
        ('{"format": "a", "format": "b"}', "the key 'format' is given twice in one object"),
        ("format: [a\n", "line 2 column 1: not YAML"),
        ('{"format": "railweave.cluster/1",}', "line 1 column 34: not JSON"),
        ("a: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
        ("a: !!int ''", "not YAML: IndexError"),
        ("a: !!bool maybe", "not YAML: KeyError"),
        ("a: !!timestamp never", "not YAML: AttributeError"),
        ("? [1]\n: 2", "a key must be text or a number"),
        ("a: &a [*a]\nformat: 1", "format: format 1"),
        ("[" * 100_000, "not usable JSON"),
        ("{a: " * 100_000, "nesting depth"),
        ("%", "not YAML"),
        ("\x00", "not YAML"),
        ('{"format": "railweave.cluster/1", "rails": ' + "9" * 5000 + "}", "not usable JSON"),
    ],
)
def test_text_that_cannot_be_read_is_told_with_its_line(text: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Cluster.parse(text)
    assert message in str(caught.value)


def test_a_file_that_grows_without_end_is_told_in_a_few_words() -> None:
    lines = ["a0: &a0 [x, x]"] + [
        f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}]" for n in range(1, 60)
    ]
    text = "\n".join(["format: railweave.cluster/1", *lines, "name: *a59"])
    with pytest.raises(InvalidInput) as caught:
        Cluster.parse(text)
    assert len(str(caught.value)) < 5000


def test_a_file_that_cannot_be_opened_is_told_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"format: \xff\xfe")
    for path, message in (
        (tmp_path / "absent.yaml", "cannot be read: No such file or directory"),
        (tmp_path, "cannot be read: Is a directory"),
        (tmp_path / "binary", "byte 8: not UTF-8 text"),
        ("nul\0byte", "cannot be read: embedded null byte"),
    ):
        with pytest.raises(InvalidInput) as caught:
            Cluster.load(path)
        assert message in str(caught.value)
        assert str(path) in str(caught.value)


def test_a_byte_order_mark_is_no_hindrance(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(GOOD), encoding="utf-8-sig")
    assert Cluster.load(path) == Cluster.parse(GOOD)


def test_what_other_yaml_writers_write_is_read(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(GOOD))
    assert Cluster.load(path) == Cluster.parse(GOOD)
