"""Any data and any text either is a good file or is refused in so many words; nothing else."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from effort import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from railweave.placement import (
    PCG,
    Cluster,
    InvalidInput,
    Model,
    Parallelism,
    Placement,
    Workload,
)
from railweave.placement.files import dump, read_data
from random_instances import Device, clusters, instances

Kind = type[Cluster] | type[PCG] | type[Placement]

CLUSTER: dict[str, Any] = {
    "format": "railweave.cluster/1",
    "name": "lab",
    "accelerators": {
        "mine": {
            "memory_bytes": 1,
            "peak_flops": {"bf16": 1.0},
            "memory_bandwidth": 1.0,
            "scale_up_bandwidth": 0.0,
        }
    },
    "tiers": [
        {"name": "tor", "bandwidth": 1e9, "latency": 1e-6, "oversubscription": 2.0},
        {"name": "spine", "bandwidth": 1e9, "latency": 1e-6},
    ],
    "rails": 2,
    "cross_rail": "spine",
    "nodes": [
        {
            "name": "n0",
            "accelerator": "mine",
            "devices": 4,
            "domains": {"tor": "t0"},
            "state": "free",
            "free_devices": [0, 1],
        },
        {"name": "n1", "accelerator": "V100", "devices": 4, "domains": {"tor": "t1"}},
    ],
}
PCG_DATA: dict[str, Any] = {
    "format": "railweave.pcg/1",
    "world_size": 4,
    "groups": [
        {"name": "a", "op": "all_reduce", "ranks": [0, 1], "bytes": 1.0, "algorithm": "ring"},
        {"name": "b", "op": "send_recv", "ranks": [2, 3], "bytes": 2.0},
    ],
    "requires": [{"ranks": [0], "accelerator": "V100"}],
}
PLACEMENT: dict[str, Any] = {
    "format": "railweave.placement/1",
    "devices": [["n0", 0], ["n1", 1]],
    "traffic_bytes": {"node": 0.0, "spine": 1.0},
    "lower_bound_bytes": 1.0,
    "gap": 0.0,
    "proved_optimal": True,
    "method": "exact",
    "notes": ["a note"],
}
KINDS: list[tuple[Kind, dict[str, Any]]] = [
    (Cluster, CLUSTER),
    (PCG, PCG_DATA),
    (Placement, PLACEMENT),
]

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(10**40), max_value=10**40)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["node", "spine", "tor", "n0", "free", "x-note", "1e9", "\ud800", "\x00"])
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)


def places(data: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [way] if way else []
    if isinstance(data, dict):
        for key, value in data.items():
            found += places(value, (*way, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            found += places(value, (*way, index))
    return found


@st.composite
def damaged(draw: st.DrawFn, good: dict[str, Any]) -> Any:
    """A good file with a few values replaced, removed, copied elsewhere, or keys added."""
    data = copy.deepcopy(good)
    for _ in range(draw(st.integers(1, 3))):
        ways = places(data)
        if not ways:
            break
        *way, last = draw(st.sampled_from(ways))
        target = data
        for step in way:
            target = target[step]
        action = draw(st.sampled_from(["replace", "remove", "add", "swap"]))
        if action == "replace":
            target[last] = draw(values)
        elif action == "remove":
            del target[last]
        elif action == "swap":
            source = data
            for step in draw(st.sampled_from(ways)):
                try:
                    source = source[step]
                except (KeyError, IndexError, TypeError):
                    break
            target[last] = copy.deepcopy(source)
        elif isinstance(target, dict):
            target[draw(st.text(max_size=6))] = draw(values)
        else:
            target.append(draw(values))
    return data


def check_refusal(error: InvalidInput) -> None:
    assert error.problems
    for problem in error.problems:
        assert problem.found and problem.fix
        assert len(str(problem)) < 2000
    assert str(error)


def load_or_refuse(kind: Kind, data: Any) -> None:
    try:
        loaded = kind.parse(data)
    except InvalidInput as error:
        check_refusal(error)
    else:
        again = json.loads(json.dumps(loaded.to_data(), allow_nan=False))
        assert kind.parse(again) == loaded


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(KINDS), values)
def test_any_data_loads_or_is_refused(kind: tuple[Kind, Any], data: Any) -> None:
    load_or_refuse(kind[0], data)


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(KINDS).flatmap(lambda k: st.tuples(st.just(k[0]), damaged(k[1]))))
def test_a_damaged_file_loads_or_is_refused(case: tuple[Kind, Any]) -> None:
    load_or_refuse(*case)


@settings(max_examples=examples(100), deadline=None)
@given(
    st.sampled_from(KINDS),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 3), st.text(max_size=3)), max_size=4),
)
def test_damaged_text_loads_or_is_refused(
    kind: tuple[Kind, Any], as_yaml: bool, cuts: list[tuple[int, int, str]]
) -> None:
    text = yaml.safe_dump(kind[1]) if as_yaml else json.dumps(kind[1], indent=1)
    for position, length, put in cuts:
        start = position % (len(text) + 1)
        text = text[:start] + put + text[start + length :]
    if kind[0] is Placement:
        return
    load_or_refuse(kind[0], text)


@settings(max_examples=examples(50), deadline=None)
@given(st.text(max_size=200))
def test_any_text_loads_or_is_refused(text: str) -> None:
    load_or_refuse(Cluster, text)
    load_or_refuse(PCG, text)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(clusters(), st.sampled_from([".yaml", ".json"]))
def test_a_cluster_survives_its_file(tmp_path: Path, cluster: Cluster, suffix: str) -> None:
    path = tmp_path / f"cluster{suffix}"
    cluster.save(path)
    assert Cluster.load(path) == cluster


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(instances())
def test_a_pcg_survives_its_file(
    tmp_path: Path, instance: tuple[PCG, Cluster, list[Device]]
) -> None:
    path = tmp_path / "pcg.json"
    instance[0].save(path)
    assert PCG.load(path) == instance[0]


@settings(
    max_examples=examples(80),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), max_size=8),
        st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), max_size=8)
        | st.integers()
        | st.floats(allow_nan=False)
        | st.booleans()
        | st.none(),
        max_size=4,
    )
)
def test_yaml_that_we_write_is_read_back_as_it_was(tmp_path: Path, data: dict[str, Any]) -> None:
    path = tmp_path / "data.yaml"
    dump(data, path)
    assert read_data(path) == (data or {})


WORKLOAD: dict[str, Any] = Workload(
    model=Model.transformer(hidden=8, layers=4, heads=2, vocab=10, sequence=4),
    parallelism=Parallelism(tp=2, pp=2, dp=2),
    global_batch=12,
).model_dump()


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(damaged(WORKLOAD))
def test_a_damaged_workload_is_made_or_is_refused(data: Any) -> None:
    if not all(isinstance(key, str) for key in data):
        return
    try:
        workload = Workload(**data)
    except InvalidInput as error:
        check_refusal(error)
    else:
        assert Workload(**workload.model_dump()) == workload


def test_a_nested_key_that_is_not_text_is_refused() -> None:
    with pytest.raises(InvalidInput, match="model: the key 1; a key must be text"):
        Workload(**(WORKLOAD | {"model": {1: 2}}))
    with pytest.raises(InvalidInput, match=r"nodes\[0\]: the key 1; a key must be text"):
        Cluster.parse(CLUSTER | {"nodes": [{1: 2}]})
    with pytest.raises(InvalidInput, match=r"nodes\[0\].domains: the key"):
        Cluster.parse(CLUSTER | {"nodes": [CLUSTER["nodes"][0] | {"domains": {1.5: "a"}}]})
