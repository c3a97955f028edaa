"""The search's own count of seconds equals the model's after any moves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from railweave.placement import PCG, Cluster
from railweave.placement.jobs.index import Fabric, Ints
from railweave.placement.timed import timed_job
from railweave.placement.timed.link_time import communication_time
from railweave.placement.timed.timed_job import job_of, net_of
from railweave.placement.timed.timed_loads import (
    Loads,
    empty_loads,
    predicted_s,
    rescale,
    smooth_s,
)
from railweave.placement.timed.timed_moves import relocate
from timed_instances import instances


def in_units(pcg_ranks: int, slots: Ints, node: Ints) -> Ints:
    """Ranks that share a node are a unit, every other node's; the rest are units of their own."""
    at = node[slots]
    return np.where(at % 2 == 0, at, len(node) + np.arange(pcg_ranks))


@pytest.mark.parametrize("grown_beyond", [0, 100])
@given(st.data())
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_moves_change_the_seconds_as_the_model_says(grown_beyond: int, data: st.DataObject) -> None:
    pcg, cluster, devices = data.draw(instances())
    fabric = Fabric.of(cluster)
    net, order = net_of(fabric)
    place = {device: slot for slot, device in enumerate(fabric.devices(order))}
    slots = np.array([place[device] for device in devices], dtype=np.int64)
    split = data.draw(st.booleans())
    unit_of = np.arange(len(slots)) if split else in_units(len(slots), slots, net.node)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timed_job, "_LEAST_INCREMENTAL", grown_beyond)
        job = job_of(pcg, fabric, unit_of)
    loads = empty_loads(net, job)
    every = np.arange(len(slots))
    relocate(net, job, loads, every, slots, len(slots))
    agree(pcg, cluster, fabric, order, loads)
    if not split:
        return
    for _ in range(data.draw(st.integers(0, 4))):
        chosen = data.draw(st.lists(st.sampled_from(every.tolist()), min_size=1, unique=True))
        free = [s for s in range(len(net.node)) if loads.rank[s] < 0 or loads.rank[s] in chosen]
        targets = data.draw(st.permutations(free))[: len(chosen)]
        moved, onto = np.array(chosen), np.array(targets)
        relocate(net, job, loads, moved, onto, len(chosen))
        agree(pcg, cluster, fabric, order, loads)
    rescale(loads)
    assert smooth_s(loads) >= predicted_s(loads) * (1 - 1e-9)


def agree(pcg: PCG, cluster: Cluster, fabric: Fabric, order: Ints, loads: Loads) -> None:
    found = communication_time(pcg, cluster, fabric.devices(order[loads.slot]))
    assert predicted_s(loads) == pytest.approx(found.total_s, rel=1e-9, abs=1e-15)
