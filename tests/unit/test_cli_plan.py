"""`railweave plan`: files in, table, JSON, report and saved files out, exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from railweave.placement import PCG, Cluster, Placement, build_pcg, evaluate, load_workload
from railweave.placement.workload_file import parse_workload, save_workload, workload_data
from railweave.scheduler.cli.main import run
from railweave.scheduler.job import Job

CONFIG = {
    "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 16,
    "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 32000,
    "max_position_embeddings": 4096,
}  # fmt: skip
ASK = ["plan", "--model", "config.json", "--cluster", "c.json", "--global-batch", "64"]
QUICK = ["--sequence", "2048", "--time-limit", "0.1", "--most-cp", "1", "--even-stages"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    nodes = [
        {"name": f"n{n}", "accelerator": "A100-80G", "devices": 4, "domains": {"pod": f"p{n % 2}"}}
        for n in range(4)
    ]
    tiers = [{"name": t, "bandwidth": 25e9, "latency": 2e-6} for t in ("pod", "spine")]
    cluster = {"format": "railweave.cluster/1", "name": "lab", "tiers": tiers, "nodes": nodes}
    (tmp_path / "c.json").write_text(json.dumps(cluster))
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_plan_is_a_table_for_people(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*ASK, *QUICK, "--tokens", "1e10", "--price", "2"]) == 0
    told = capsys.readouterr().out
    for word in ("tokens/s", "MFU", "memory", "over spine", "slower by", "Megatron rule of thumb"):
        assert word in told
    assert "strategies considered" in told and "device hours" in told and "cost" in told


def test_the_plan_is_json_for_programs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*ASK, *QUICK, "--json", "--tp", "2,4", "--zero", "1", "--keep", "4"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["format"] == "railweave.plan/1" and told["free_devices"] == 16
    assert 1 <= len(told["strategies"]) <= 4
    for one in told["strategies"]:
        assert one["parallelism"]["tp"] in (2, 4) and one["parallelism"]["zero"] == 1
        assert sum(one["breakdown"].values()) == pytest.approx(one["step_s"])
        assert one["memory_bytes"] <= one["memory_limit_bytes"]
    counts = told["considered"]
    assert counts["considered"] == sum(n for name, n in counts.items() if name != "considered")


def test_what_is_saved_fits_together_and_makes_a_job(here: Path) -> None:
    saved = ["--save-workload", "w.yaml", "--save-pcg", "p.json", "--save-placement", "at.json"]
    assert run([*ASK, *QUICK, *saved, "--out", "plan.html"]) == 0
    workload, pcg = load_workload("w.yaml"), PCG.load("p.json")
    placement, cluster = Placement.load("at.json"), Cluster.load("c.json")
    assert pcg.world_size == workload.parallelism.world_size == len(placement.devices) == 16
    counted = evaluate(build_pcg(workload), cluster, placement.devices).traffic_bytes
    assert counted == pytest.approx(placement.traffic_bytes)
    assert Job(name="it", entrypoint="python train.py", workload=workload).world_size == 16
    page = Path("plan.html").read_text()
    assert "<svg" in page and "<script" not in page


def test_a_plan_that_does_not_fit_fails_with_the_memory_that_is_short(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    large = ["plan", "--model", "gpt3-175b", "--cluster", "c.json", "--global-batch", "64"]
    assert run([*large, "--sequence", "2048", "--recompute", "full"]) == 1
    told = capsys.readouterr().err
    assert "too much" in told and "It would fit on" in told


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--model", "missing.json"], "there is no file missing.json"),
        (["--model", "llama-3-9b"], "did you mean"),
        (["--tp", "four"], "give whole numbers joined by commas"),
        (["--tp", "0"], "give some of numbers from 1"),
        (["--zero", "4"], "give some of 0,1,2,3"),
        (["--recompute", "some"], "give some of none,selective,full"),
        (["--memory-share", "1.5"], "is not in the range"),
        (["--price", "2"], "--price needs --tokens"),
        (["--out", "nowhere/plan.html"], "the folder nowhere does not exist"),
        (["--save-pcg", "x.json", "--save-workload", "x.json"], "two outputs"),
        (["--out", "./c.json"], "is read by this plan; write to another file"),
        (["--cluster", "none.yaml"], "cannot be read"),
        (["--sequence", "0"], "is not in the range"),
    ],
)
def test_wrong_input_is_answered_with_what_to_change(
    here: Path, options: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*ASK, *QUICK, *options]) == 2
    shown = capsys.readouterr().err.replace("\n", " ")
    assert told in " ".join(shown.replace("│", " ").split())


def test_a_workload_file_is_read_as_it_was_written(here: Path) -> None:
    assert run([*ASK, *QUICK, "--save-workload", "w.json"]) == 0
    workload = load_workload("w.json")
    save_workload(workload, "again.yaml")
    assert load_workload("again.yaml") == workload
    assert parse_workload(workload_data(workload) | {"x-note": "mine"}) == workload


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"global_batch": 3}, "is 1.5 micro-batches"),
        ({"parallelism": {"tp": 3}}, "tp 3 does not divide"),
        ({"batch": 1}, "unknown key"),
        ({"format": "railweave.pcg/1"}, "this must be 'railweave.workload/1'"),
    ],
)
def test_a_faulty_workload_file_is_refused_with_its_place(
    here: Path, change: dict[str, Any], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data: dict[str, Any] = {
        "format": "railweave.workload/1",
        "model": {"hidden": 256, "layers": 4, "heads": 4, "vocab": 1024, "sequence": 128},
        "parallelism": {"dp": 2},
        "global_batch": 8,
    }
    Path("w.json").write_text(json.dumps(data | change))
    assert run(["submit", "--workload", "w.json", "--", "python", "train.py"]) == 2
    assert told in capsys.readouterr().err
