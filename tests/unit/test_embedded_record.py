"""What is written down of an embedded cluster that runs on: read back, or refused with help."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from railweave.agents import processes
from railweave.scheduler.embedded import EmbeddedCluster
from railweave.scheduler.embedded_node import HEAD, EmbeddedNode
from railweave.scheduler.embedded_record import EmbeddedRecord
from railweave.scheduler.keeper_link import EmbeddedClusterError


def record(tmp_path: Path, **changes: Any) -> EmbeddedRecord:
    # Any process that runs may stand for the keeper, as reading only looks whether it is there.
    own = processes.process(os.getpid())
    assert own is not None
    given: dict[str, Any] = {
        "address": "127.1.1.2:6379",
        "token_path": str(tmp_path / "ray-token"),
        "port": 6379,
        "keeper_pid": own.pid,
        "keeper_start_ticks": own.start_ticks,
        "directory": tmp_path / "rw",
        "state_dir": tmp_path,
        "durable": True,
        "head": EmbeddedNode(HEAD, 0),
        "started": 3,
        "subnet": "1.1",
        "octets": {HEAD: 2, "n0": 3},
        "nodes": (EmbeddedNode("n0", 4, "H100-SXM", {"pod": "p0"}),),
    }
    return EmbeddedRecord(**given | changes)


def test_what_is_written_is_read_back_with_its_keeper(tmp_path: Path) -> None:
    written = record(tmp_path)
    written.write(tmp_path / "embedded.json")
    found = EmbeddedRecord.read(tmp_path / "embedded.json")
    assert found is not None
    assert found[0] == written
    assert found[1].pid == os.getpid()


def test_a_cluster_whose_keeper_is_gone_is_none(tmp_path: Path) -> None:
    # The number may be in use again, by a process that began at another time.
    record(tmp_path, keeper_start_ticks=1).write(tmp_path / "embedded.json")
    assert EmbeddedRecord.read(tmp_path / "embedded.json") is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": "railweave.embedded/2"}', "\0"])
def test_what_is_no_record_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "embedded.json").write_text(text)
    assert EmbeddedRecord.read(tmp_path / "embedded.json") is None


@pytest.mark.parametrize(
    ("key", "value"), [("durable", ...), ("octets", ["1"]), ("port", None), ("head", {"name": 3})]
)
def test_a_running_cluster_of_another_version_is_refused_with_the_key_and_a_way_to_end_it(
    tmp_path: Path, key: str, value: object
) -> None:
    data = json.loads(record(tmp_path).model_dump_json())
    data[key] = value
    if value is ...:
        del data[key]
    (tmp_path / "embedded.json").write_text(json.dumps(data))
    with pytest.raises(EmbeddedClusterError) as caught:
        EmbeddedCluster.attach(tmp_path / "embedded.json")
    assert key in str(caught.value)
    assert f"kill {os.getpid()}" in str(caught.value)
    assert (tmp_path / "embedded.json").exists()
