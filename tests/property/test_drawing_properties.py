"""Whatever the cluster and job, a drawing is well-formed and tells the evaluator's numbers."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from effort import examples
from hypothesis import given, settings
from railweave.placement import (
    PCG,
    Cluster,
    draw_fabric,
    draw_placement,
    evaluate,
    spine_crossings,
)
from random_instances import Device, instances


@settings(max_examples=examples(40), deadline=None)
@given(instances())
def test_spine_crossings_add_up_to_the_evaluators_bytes(
    instance: tuple[PCG, Cluster, list[Device]],
) -> None:
    total = sum(crossing.bytes for crossing in spine_crossings(*instance))
    assert total == pytest.approx(evaluate(*instance).cross_spine_bytes)


@settings(max_examples=examples(30), deadline=None)
@given(instances())
def test_any_cluster_and_any_placement_can_be_drawn(
    instance: tuple[PCG, Cluster, list[Device]],
) -> None:
    ElementTree.fromstring(draw_fabric(instance[1]))
    ElementTree.fromstring(draw_placement(*instance))
