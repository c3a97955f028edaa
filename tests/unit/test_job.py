"""A job is checked where it is written, says everything that is wrong, and travels as JSON."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from railweave.placement import (
    PCG,
    AtMost,
    Constraints,
    InvalidInput,
    Model,
    Parallelism,
    Workload,
    build_pcg,
)
from railweave.scheduler.job import Job, new_job_id

PAIR = {
    "format": "railweave.pcg/1",
    "world_size": 2,
    "groups": [{"name": "dp", "op": "all_reduce", "ranks": [0, 1], "bytes": 10}],
}


def test_a_job_travels_as_json_and_comes_out_the_same(tmp_path: Path) -> None:
    job = Job(
        name="gpt",
        entrypoint="python 'my train.py' --x=1",
        pcg=PAIR,
        priority=3,
        checkpoint_dir=tmp_path,
        env={"A": "b"},
    )
    assert job.entrypoint == ("python", "my train.py", "--x=1")
    assert Job.parse(job.to_json()) == job
    (tmp_path / "job.json").write_text(job.to_json())
    assert Job.load(tmp_path / "job.json") == job
    assert json.loads(job.to_json())["format"] == "railweave.job/1"


def test_a_pcg_is_taken_as_itself_as_data_or_from_its_file(tmp_path: Path) -> None:
    graph = PCG.parse(PAIR)
    graph.save(tmp_path / "pcg.json")
    for given in (graph, PAIR, tmp_path / "pcg.json", str(tmp_path / "pcg.json")):
        job = Job(name="x", entrypoint=["true"], pcg=given)
        assert job.graph() == graph
        assert job.world_size == 2


def test_a_workload_travels_as_itself_and_becomes_its_graph() -> None:
    model = Model.transformer(hidden=64, layers=4, heads=4, vocab=256, sequence=32)
    split = Parallelism(tp=2, pp=2, dp=2)
    workload = Workload(model=model, parallelism=split, global_batch=8)
    job = Job(name="x", entrypoint="true", workload=workload)
    assert job.world_size == 8
    assert Job.parse(job.to_json()) == job
    assert job.graph() == build_pcg(workload)
    with pytest.raises(InvalidInput, match="give one of them"):
        Job(name="x", entrypoint="true", workload=workload, pcg=PAIR)
    with pytest.raises(InvalidInput, match="the workload has 8 ranks"):
        Job(name="x", entrypoint="true", workload=workload, devices=4)


def test_a_count_alone_is_placed_as_one_ring_of_all_ranks() -> None:
    graph = Job(name="x", entrypoint="true", devices=5).graph()
    assert graph.world_size == 5
    assert [group.ranks for group in graph.groups] == [(0, 1, 2, 3, 4)]


def test_devices_of_a_needed_kind_are_counted() -> None:
    needing = PAIR | {"requires": [{"ranks": [1], "accelerator": "H800"}]}
    assert Job(name="x", entrypoint="true", pcg=needing).kinds() == {"H800": 1}


def test_a_job_starts_where_it_was_made_unless_told_otherwise() -> None:
    assert Job(name="x", entrypoint="true", devices=1).working_dir == os.getcwd()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"entrypoint": "python 'x"}, "entrypoint: .*No closing quotation"),
        ({"entrypoint": ""}, "entrypoint: "),
        ({"entrypoint": ["", "x"]}, r"entrypoint\[0\]: an empty command"),
        ({"entrypoint": ["a\0b"]}, "NUL"),
        ({"devices": 0}, "devices: found 0"),
        ({"devices": None}, "no size; give workload=, pcg=, or devices="),
        ({"devices": 3, "pcg": PAIR}, "devices: found 3, but the pcg has 2 ranks"),
        ({"devices": None, "pcg": PAIR | {"world_size": 1}}, r"pcg.groups\[0\].ranks\[1\]: rank 1"),
        ({"devices": None, "pcg": "/no/such/file"}, "pcg: cannot be read"),
        ({"env": {"RANK": "1"}}, "env.RANK: Railweave sets this itself"),
        ({"env": {"TORCHELASTIC_RUN_ID": "1"}}, "Railweave sets this itself"),
        ({"env": {"A B": "1"}}, "no variable's name"),
        ({"working_dir": "here"}, "working_dir: found 'here', a relative path"),
        ({"checkpoint_dir": "here"}, "checkpoint_dir: found 'here', a relative path"),
        ({"max_restarts": -1}, "max_restarts: found -1"),
        ({"grace_s": float("nan")}, "grace_s"),
        ({"priorty": 1}, "priorty: unknown key; did you mean 'priority'"),
        ({"name": ""}, "name: found ''"),
    ],
)
def test_a_wrong_job_says_where_and_what(change: dict[str, Any], message: str) -> None:
    fields: dict[str, Any] = {"name": "x", "entrypoint": "true", "devices": 1, **change}
    with pytest.raises(InvalidInput, match=message):
        Job(**fields)
    with pytest.raises(InvalidInput, match=message):
        Job.parse({"format": "railweave.job/1", **fields})


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(InvalidInput) as caught:
        Job(name="x", entrypoint="true", env={"RANK": "1"}, working_dir="a")
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize("name", ["GPT 3 / 175B", "дело", "x" * 200, "-.-"])
def test_ids_fit_everywhere_and_never_repeat(name: str) -> None:
    ids = {new_job_id(name) for _ in range(50)}
    assert len(ids) == 50
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", each) for each in ids)


def test_describing_a_job_needs_no_ray() -> None:
    code = """
import sys
import railweave.scheduler
from railweave.scheduler import Job, JobState
assert "ray" not in sys.modules, "imported"
assert set(railweave.scheduler.__all__) == {"Client", "Job", "JobState"}
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    with pytest.raises(ImportError, match="Clientt"):
        exec("from railweave.scheduler import Clientt")


def test_constraints_travel_with_the_job_and_may_be_data_or_a_file(tmp_path: Path) -> None:
    wish = Constraints(at_most=AtMost(nodes=2, tier="rack"), spares=1)
    path = tmp_path / "wish.yaml"
    path.write_text("format: railweave.constraints/1\nat_most: {nodes: 2, tier: rack}\nspares: 1\n")
    data = {"at_most": {"nodes": 2, "tier": "rack"}, "spares": 1}
    for given in (wish, data, path):
        one = Job(name="x", entrypoint="true", devices=4, constraints=given)
        assert one.constraints == wish
        assert Job.parse(one.to_json()) == one
    assert "constraints" not in Job(name="x", entrypoint="true", devices=4).to_json()


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        ({"at_most": {"nodes": 0, "tier": "rack"}}, "at_most.nodes"),
        ({"togehter": {"tier": "rack"}}, "did you mean 'together'"),
        ({"pinned": [{"rank": 7, "node": "a"}]}, r"constraints.pinned\[0\].rank: rank 7 does not"),
        ({"format": "railweave.cluster/1"}, "this must be 'railweave.constraints/1'"),
    ],
)
def test_wrong_constraints_of_a_job_say_where(constraints: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Job(name="x", entrypoint="true", devices=4, constraints=constraints)
