"""The report of a plan: complete, drawn to scale, and nothing in it can break out."""

from __future__ import annotations

import re
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from railweave.placement import Cluster, Limits, Model, Plan, plan
from railweave.placement.planning.planned import Run
from railweave.placement.planning.search import Point
from railweave.scheduler.plan_drawing import draw_breakdown, draw_points, pareto
from railweave.scheduler.plan_report import render_plan_report

HOSTILE = "</script><img src=x onerror=alert(1)>\"'&amp;]]> {{7*7}}"


def lab(name: str = "lab") -> Cluster:
    return Cluster.parse(
        {
            "format": "railweave.cluster/1",
            "name": name,
            "tiers": [{"name": "spine", "bandwidth": 25e9, "latency": 5e-6}],
            "nodes": [
                {"name": f"{name} {n}", "accelerator": "A100-80G", "devices": 4} for n in range(2)
            ],
        }
    )


@cache
def made(name: str = "lab", model: str = "small") -> Plan:
    sizes = {"hidden": 1024, "layers": 8, "heads": 16, "vocab": 32000, "sequence": 1024}
    return plan(
        Model.transformer(**sizes, name=model),
        lab(name),
        global_batch=32,
        time_limit_s=0.1,
        keep=6,
        limits=Limits(most_micro_batch=4),
    )


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_holds_every_strategy_and_reason() -> None:
    found = made()
    page = render_plan_report(found, lab(), Run(1e9, 2.0))
    tags = _Tags()
    tags.feed(page)
    assert tags.open == [] and "script" not in tags.seen and "img" not in tags.seen
    for one in found.strategies:
        assert str(one) in page and one.why in page
    for rule in found.rules_of_thumb:
        assert rule.name in page
    for near in found.neighbours:
        assert near.change in page
    assert f"{found.considered['considered']:,}" in page
    assert page.count("<svg") == 3


def test_names_from_outside_stay_text() -> None:
    page = render_plan_report(made(HOSTILE, HOSTILE), lab(HOSTILE))
    tags = _Tags()
    tags.feed(page)
    assert "script" not in tags.seen and "img" not in tags.seen
    assert "49" not in re.findall(r"<title>(.*?)</title>", page)[0]


def test_bars_are_as_long_as_their_seconds() -> None:
    found = made()
    root = ElementTree.fromstring(draw_breakdown(found))
    boxes = [e for e in root.iter() if e.tag.endswith("}rect") and e.get("height") == "24"]
    tips = [(box, box[0].text or "") for box in boxes if len(box)]
    lengths = [
        (float(box.get("width") or 0), float(re.search(r": ([\d.e+-]+) s", tip)[1]))  # type: ignore[index]
        for box, tip in tips
    ]
    (scale, *_) = sorted((w / s for w, s in lengths if w > 50), reverse=True)
    for width, seconds in lengths:
        assert width == pytest.approx(seconds * scale, abs=0.2 + 0.01 * width)


def test_points_are_drawn_with_the_edge_that_none_beats() -> None:
    found = made()
    edge = pareto(found.points)
    for one, other in pairwise(edge):
        assert one.step_s < other.step_s and one.memory_bytes > other.memory_bytes
    for point in found.points:
        if point.fits:
            assert any(
                e.step_s <= point.step_s and e.memory_bytes <= point.memory_bytes for e in edge
            )
    ElementTree.fromstring(draw_points(found))


def test_a_plan_of_one_point_is_drawn() -> None:
    only = plan(
        made().best.workload.model,
        lab(),
        global_batch=32,
        time_limit_s=0.1,
        limits=Limits(tp=1, pp=1, cp=1, zero=1, micro_batch=1, recompute="none"),
    )
    ElementTree.fromstring(draw_points(only))
    assert pareto([Point(1.0, 1.0, False, (1,))]) == []
