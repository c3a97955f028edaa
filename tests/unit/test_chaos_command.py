"""`railweave chaos` where no cluster is needed: its list, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from railweave.scheduler.chaos.kinds import Kind
from railweave.scheduler.cli.main import DONE, FAILED, WRONG_INPUT, run


def test_the_list_has_every_kind_with_what_is_done_and_noticed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["chaos", "--list", "--json"]) == DONE
    told = json.loads(capsys.readouterr().out)
    assert [each["kind"] for each in told] == [kind.value for kind in Kind]
    assert all(each["what"] and each["needs"] for each in told)
    assert run(["chaos", "--list"]) == DONE
    shown = capsys.readouterr().out
    assert all(kind.value in shown for kind in Kind)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name the jobs to break"),
        (["job", "--kind", "meteor"], "'meteor' is not one of"),
        (["job", "--faults", "none.json"], "does not exist"),
        (["job", "--faults", __file__, "--seed", "3"], "leave --kind and --seed out"),
        (["job", "--count", "0"], "--count"),
    ],
)
def test_wrong_usage_is_told(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["chaos", *words]) == WRONG_INPUT
    assert said in capsys.readouterr().err


def test_without_a_cluster_it_says_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAILWEAVE_HOME", str(tmp_path))
    assert run(["chaos", "job", "--yes"]) == FAILED
    assert "no Ray cluster" in capsys.readouterr().err
