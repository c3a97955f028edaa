"""Drawings: well-formed, safe, complete for small clusters and readable for large ones."""

from __future__ import annotations

import re
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter

import pytest
from railweave.placement import (
    PCG,
    Cluster,
    CrossRail,
    InvalidInput,
    Model,
    Parallelism,
    Workload,
    build_pcg,
    clos_8_rail,
    draw_fabric,
    draw_placement,
    dual_plane,
    evaluate,
    fat_tree,
    nic_id,
    nvl_domains,
    occupied,
    rank_parts,
    spine_crossings,
    switch_id,
)
from railweave.placement.drawing.svg import bytes_text, colours, fitted, ink_on, rate_text

SVG = "{http://www.w3.org/2000/svg}"
SMALL = fat_tree(4, nodes_per_rack=2, racks_per_pod=2, devices_per_node=4)


def elements(svg: str, tag: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(svg).iter(SVG + tag))


def texts(svg: str) -> list[str]:
    return [
        (element.text or (element[-1].tail if len(element) else "")) or ""
        for element in elements(svg, "text")
    ]


def tips(svg: str) -> str:
    return "\n".join(element.text or "" for element in elements(svg, "title"))


def job(tp: int = 4, pp: int = 2, dp: int = 2) -> PCG:
    model = Model.transformer(hidden=64, layers=4, heads=8, vocab=100, sequence=32)
    split = Parallelism(tp=tp, pp=pp, dp=dp)
    return build_pcg(Workload(model=model, parallelism=split, global_batch=4 * dp))


def packed(cluster: Cluster, count: int) -> list[tuple[str, int]]:
    free = [(node.name, index) for node in cluster.nodes for index in node.usable_devices]
    return free[:count]


CLUSTERS = {
    "one device": fat_tree(1, nodes_per_rack=1, racks_per_pod=None, devices_per_node=1),
    "small": SMALL,
    "railed": clos_8_rail(3, nodes_per_unit=4, units_per_pod=2),
    "spine rails": clos_8_rail(2, nodes_per_unit=2, units_per_pod=1, cross_rail="spine"),
    "scale-up": nvl_domains(4, domains_per_pod=2),
    "planes": dual_plane(5, nodes_per_segment=3),
    "two thousand nodes": occupied(clos_8_rail(100), 0.4, seed=1),
    "eight thousand nodes": occupied(clos_8_rail(400), 0.4, seed=1),
    "empty": SMALL.with_nodes(()),
}


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_drawing_is_well_formed_and_holds_no_script_and_no_outside_reference(name: str) -> None:
    svg = draw_fabric(CLUSTERS[name])
    root = ElementTree.fromstring(svg)
    assert root.tag == SVG + "svg"
    assert not re.search(r"<script|javascript:|href|url\(|\son\w+=|@import", svg)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        "svg",
        "title",
        "desc",
        "style",
        "rect",
        "polyline",
        "path",
        "text",
    }


@pytest.mark.parametrize("name", CLUSTERS)
def test_everything_lies_within_the_drawing(name: str) -> None:
    svg = draw_fabric(CLUSTERS[name])
    root = ElementTree.fromstring(svg)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for rect in elements(svg, "rect"):
        x, y = float(rect.attrib.get("x", 0)), float(rect.attrib.get("y", 0))
        assert 0 <= x <= x + float(rect.attrib["width"]) <= width + 0.1
        assert 0 <= y <= y + float(rect.attrib["height"]) <= height + 0.1


@pytest.mark.parametrize("name", CLUSTERS)
def test_boxes_overlap_only_by_holding_one_another(name: str) -> None:
    boxes = [
        tuple(float(rect.attrib[key]) for key in ("x", "y", "width", "height"))
        for rect in elements(draw_fabric(CLUSTERS[name]), "rect")
        if rect.attrib.get("class", "") in ("box0", "box1", "box2", "node")
    ]
    boxes.sort(key=lambda box: -box[2] * box[3])
    for number, (x, y, w, h) in enumerate(boxes[:300]):
        for a, b, c, d in boxes[number + 1 : 300]:
            apart = a >= x + w or a + c <= x or b >= y + h or b + d <= y
            inside = a >= x and b >= y and a + c <= x + w and b + d <= y + h
            assert apart or inside


def test_hostile_names_are_text_and_nothing_else() -> None:
    hostile = "</text><script>alert(1)</script>\"&'"
    data = SMALL.to_data()
    data["name"] = hostile
    data["nodes"][0]["name"] = hostile
    for node in data["nodes"]:
        node["domains"] = {"rack": node["domains"]["rack"] + hostile, "pod": hostile}
    cluster = Cluster.parse(data)
    for svg in (
        draw_fabric(cluster),
        draw_fabric(cluster, title=hostile),
        draw_placement(job(), cluster, packed(cluster, 16)),
    ):
        assert "script" not in {e.tag.removeprefix(SVG) for e in ElementTree.fromstring(svg).iter()}
        assert hostile in tips(svg)


def test_a_small_fabric_shows_every_domain_node_and_device() -> None:
    svg = draw_fabric(SMALL)
    shown = texts(svg)
    for wanted in ("spine", "pod p0", "pod p1", "rack r3", "r3n1"):
        assert wanted in shown
    assert tips(svg).count(": free") == 2 * 32  # the square and its label


def test_states_and_partly_taken_nodes_are_told_apart() -> None:
    data = SMALL.to_data()
    data["nodes"][0]["state"] = "faulty"
    data["nodes"][1]["state"] = "drained"
    data["nodes"][2]["free_devices"] = [1]
    svg = draw_fabric(Cluster.parse(data))
    shown = texts(svg)
    assert {
        "free: 21 devices",
        "busy: 3 devices",
        "drained: 4 devices",
        "faulty: 4 devices",
    } <= set(shown)
    assert "faulty" in shown and "drained" in shown


def test_rails_are_drawn_in_their_colours() -> None:
    svg = draw_fabric(CLUSTERS["railed"])
    assert {f"rail {rail}" for rail in range(8)} <= set(texts(svg))
    assert "tor switch of rail 7" in tips(svg)
    assert "rail 0" not in texts(draw_fabric(SMALL))


def test_rails_that_meet_at_the_spine_have_one_switch_there() -> None:
    assert "spine switch of rail" not in tips(draw_fabric(CLUSTERS["spine rails"]))
    assert "spine switch of rail 7" in tips(draw_fabric(CLUSTERS["railed"]))


def test_degraded_links_are_marked_and_listed_worst_first() -> None:
    cluster = CLUSTERS["railed"]
    svg = draw_fabric(
        cluster,
        {
            (nic_id("u0n1", 3), switch_id(1, "u0", 3)): 0.25,
            (switch_id(1, "u2", 5), switch_id(2, "p1", 5)): 0.8,
            (nic_id("u1n0", 0), switch_id(1, "u1", 0)): 0.0,
            (nic_id("u1n1", 0), switch_id(1, "u1", 0)): 1.0,
        },
    )
    shown = texts(svg)
    start = shown.index("3 degraded links")
    assert shown[start + 1 : start + 4] == [
        "node u1n0 rail 0 to its tor switch: dead (200 Gb/s when healthy)",
        "node u0n1 rail 3 to its tor switch: at 25% of 200 Gb/s",
        "tor u2 rail 5 to its pod switch: at 80% of 800 Gb/s",
    ]
    assert "dead link" in shown and "link at 25%" in shown
    assert "degraded" not in draw_fabric(cluster)


def test_a_degraded_link_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no 'nic:zz/0' in the graph"):
        draw_fabric(SMALL, {("nic:zz/0", "switch:1:r0"): 0.5})


def test_large_fabrics_keep_every_node_or_sum_up_their_domains() -> None:
    nodes = CLUSTERS["two thousand nodes"]
    svg = draw_fabric(nodes)
    dots = [r for r in elements(svg, "rect") if r.attrib["width"] == r.attrib["height"] == "13"]
    assert len(dots) == 2000
    more = draw_fabric(CLUSTERS["eight thousand nodes"])
    assert "u399" in texts(more)
    assert len(more) < 600_000


def test_the_time_to_draw_two_thousand_nodes_does_not_explode() -> None:
    cluster = occupied(clos_8_rail(100), 0.3, seed=3)
    pcg = job(tp=8, pp=4, dp=256)
    start = time.process_time()
    svg = draw_placement(pcg, cluster, packed(cluster, 8192))
    assert time.process_time() - start < 20
    assert len(svg) < 500_000


def test_light_dark_and_automatic_themes_differ_only_in_their_style() -> None:
    light, dark, auto = (draw_fabric(SMALL, theme=theme) for theme in ("light", "dark", "auto"))
    bodies = {re.sub(r"<style>.*</style>", "", svg) for svg in (light, dark, auto)}
    assert len(bodies) == 1
    assert "prefers-color-scheme:dark" in auto
    assert "prefers-color-scheme" not in light + dark


def test_drawing_twice_gives_the_same_text() -> None:
    cluster = CLUSTERS["railed"]
    draws = {draw_placement(job(), cluster, packed(cluster, 16)) for _ in range(2)}
    assert len(draws) == 1


def test_a_placement_colours_devices_by_stage_and_shows_each_rank() -> None:
    svg = draw_placement(job(), SMALL, packed(SMALL, 16), lower_bound_bytes=1000.0)
    fills = Counter(
        rect.attrib["style"]
        for rect in elements(svg, "rect")
        if rect.attrib["width"] == "22" and "style" in rect.attrib
    )
    assert list(fills.values()) == [8, 8]
    shown = texts(svg)
    assert {str(rank) for rank in range(16)} <= set(shown)
    assert {"stage 0 (8 ranks)", "stage 1 (8 ranks)", "not used, free: 16"} <= set(shown)
    assert any(text.endswith("(no placement has less than 1 kB)") for text in shown)


def test_spine_crossing_bytes_stand_on_arcs_between_their_domains() -> None:
    # stage 0 in pod p0, stage 1 in pod p1: only pipeline and embedding traffic crosses
    devices = packed(SMALL, 32)
    devices = devices[:8] + devices[16:24]
    svg = draw_placement(job(), SMALL, devices)
    crossing = evaluate(job(), SMALL, devices).cross_spine_bytes
    assert crossing > 0
    assert bytes_text(crossing) in texts(svg)
    assert f"p0 and p1: {bytes_text(crossing)} a step" in tips(svg)
    assert len(elements(svg, "path")) == 1


def test_no_arcs_where_nothing_crosses_the_spine() -> None:
    devices = packed(SMALL, 16)
    assert evaluate(job(), SMALL, devices).cross_spine_bytes == 0
    svg = draw_placement(job(), SMALL, devices)
    assert elements(svg, "path") == []
    assert "0 B a step over the spine" in svg


def test_traffic_of_many_domains_is_listed_where_arcs_would_tangle() -> None:
    cluster = fat_tree(12, nodes_per_rack=1, racks_per_pod=None, devices_per_node=4)
    svg = draw_placement(job(tp=4, pp=1, dp=12), cluster, packed(cluster, 48))
    assert elements(svg, "path") == []
    shown = texts(svg)
    assert "Most bytes a step over the spine" in shown
    assert any(text.startswith("and 4 pairs more with") for text in shown)


def test_traffic_that_stays_in_a_domain_but_crosses_the_spine_is_shown_as_such() -> None:
    cluster = clos_8_rail(2, nodes_per_unit=2, units_per_pod=1, cross_rail=CrossRail.SPINE)
    devices = packed(cluster, 16)
    shifted = devices[1:] + devices[:1]
    pcg = job(tp=4, pp=2, dp=2)
    assert "within p0" in tips(draw_placement(pcg, cluster, shifted))


def test_a_job_of_one_rank_can_be_drawn() -> None:
    cluster = CLUSTERS["one device"]
    svg = draw_placement(PCG(world_size=1, groups=()), cluster, [("r0n0", 0)])
    assert "1 rank" in texts(svg)


def test_crossings_add_up_to_the_evaluators_bytes() -> None:
    cluster = CLUSTERS["spine rails"]
    for pcg in (job(tp=8, pp=2, dp=2), job(tp=2, pp=4, dp=4)):
        devices = packed(cluster, 32)[::-1]
        total = sum(crossing.bytes for crossing in spine_crossings(pcg, cluster, devices))
        assert total == pytest.approx(evaluate(pcg, cluster, devices).cross_spine_bytes)


def test_stages_are_found_from_the_groups_alone() -> None:
    assert rank_parts(job(tp=2, pp=2, dp=2)) == [0, 0, 0, 0, 1, 1, 1, 1]
    assert rank_parts(job(tp=2, pp=1, dp=2)) == [0, 0, 0, 0]
    assert rank_parts(job(tp=1, pp=3 - 1, dp=1)) == [0, 1]
    assert rank_parts(PCG(world_size=2, groups=())) == [0, 1]


def test_numbers_are_written_for_people() -> None:
    assert [bytes_text(count) for count in (0, 999.4, 999.6, 12.345e9)] == [
        "0 B",
        "999 B",
        "1 kB",
        "12.3 GB",
    ]
    assert rate_text(25e9) == "200 Gb/s"


def test_long_names_keep_both_ends() -> None:
    assert fitted("short", 100) == "short"
    cut = fitted("gpu-node-rack-17-position-0042", 80)
    assert cut.startswith("gpu-no") and cut.endswith("0042") and "…" in cut
    assert fitted("name", 5) == ""


def test_colours_are_distinct_and_their_ink_readable() -> None:
    for count in (1, 10, 11, 64):
        found = colours(count)
        assert len(set(found)) == count
        assert {ink_on(colour) for colour in found} <= {"#14181d", "#ffffff"}
