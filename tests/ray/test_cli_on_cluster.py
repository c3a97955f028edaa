"""The command's promises on a real cluster: from `up` to `down`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from railweave.placement import Cluster, build_pcg, load_workload
from railweave.placement.constraints import AtMost, Constraints, Pin, Segments, with_free
from railweave.placement.constraints_file import parse_constraints
from railweave.scheduler import Job
from railweave.scheduler.cli.main import run
from railweave.scheduler.client import Client
from railweave.scheduler.embedded import HEAD, EmbeddedCluster
from shared_cluster import NODES
from waiting import wait_until

COMMAND = (sys.executable, "-c", "from railweave.scheduler.cli.main import main; main()")
PYTHON = ("python", "-c")
TWO_PODS = """
format: railweave.cluster/1
name: two-pods
rails: 2
tiers:
  - {name: pod, bandwidth: 25e9, latency: 2e-6}
  - {name: spine, bandwidth: 25e9, latency: 4e-6, oversubscription: 4}
nodes:
  - {name: n0, accelerator: H200, devices: 2, domains: {pod: p0}}
  - {name: n1, accelerator: H200, devices: 2, domains: {pod: p0}}
  - {name: n2, accelerator: H200, devices: 2, domains: {pod: p1}}
  - {name: n3, accelerator: H200, devices: 2, domains: {pod: p1}}
"""


@pytest.fixture(scope="module")
def up(session_cluster: EmbeddedCluster) -> Iterator[None]:
    # All commands share a connection that is made as each makes its own. With that of an earlier
    # module, Ray's warnings of lost nodes would come into what they print.
    ray.shutdown()
    with Client():
        state_dir = session_cluster.state_dir / "cli-daemon"
        assert run(["up", "--state-dir", str(state_dir)]) == 0
        yield
        assert run(["down", "--cancel-jobs"]) == 0
        assert ray.util.list_named_actors(all_namespaces=True) == []


@pytest.fixture
def railweave(
    cluster: EmbeddedCluster, up: None, capsys: pytest.CaptureFixture[str]
) -> Iterator[Any]:
    """Runs a command; returns its exit code, output and errors."""

    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(list(arguments))
        shown = capsys.readouterr()
        assert "Traceback" not in shown.err
        return code, shown.out, shown.err

    yield call
    for job in json.loads(call("jobs", "--json")[1]):
        if job["ended_s"] is None:
            call("cancel", job["id"], "--wait")


def test_status_lists_every_node_with_its_domain_and_devices(railweave: Any) -> None:
    code, out, _ = railweave("status", "--json")
    assert code == 0
    nodes = {node["name"]: node for node in json.loads(out)["nodes"]}
    for node in NODES:
        found = nodes[node.name]
        assert (found["state"], found["devices"], found["free"]) == ("ok", 2, 2)
        assert found["domains"] == dict(node.domains)
    code, out, _ = railweave("status")
    assert code == 0 and "jobs:" in out and "pod=p1" in out


def test_probe_measures_and_topology_shows_the_same_cluster(railweave: Any, tmp_path: Path) -> None:
    code, out, err = railweave("probe", "--json", "--out", str(tmp_path / "cluster.yaml"))
    assert code == 0
    assert "pairs measured" in err
    probed = Cluster.parse(out)
    assert {node.name for node in probed.nodes} == {node.name for node in NODES}
    assert Cluster.load(tmp_path / "cluster.yaml") == probed
    assert Cluster.parse(railweave("topology", "--json")[1]) == probed
    assert "p0  pod" in railweave("topology")[1]


def test_a_submitted_job_can_be_waited_for_looked_at_and_read(railweave: Any) -> None:
    script = "import os; print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])"
    code, out, _ = railweave(
        *("submit", "--name", "tiny", "--tp", "2", "--dp", "2", "--wait", "--json"),
        *("--env", "GREETING=hello", "--", *PYTHON, script),
    )
    assert code == 0
    job = json.loads(out)
    assert (job["state"], job["devices"], job["attempt"]) == ("SUCCEEDED", 4, 1)
    assert railweave("logs", job["id"], "--rank", "3")[1] == "rank 3 of 4\n"
    assert railweave("logs", job["id"], "--follow")[1] == "rank 0 of 4\n"
    shown = json.loads(railweave("show", job["id"], "--json")[1])
    (attempt,) = shown["attempts"]
    placed = attempt["placement"]["devices"]
    assert placed[0][0] == placed[1][0] and placed[2][0] == placed[3][0]  # tp stays in a node
    assert [event["kind"] for event in shown["events"]][:1] == ["submitted"]
    assert "SUCCEEDED" in railweave("show", job["id"])[1]
    time = json.loads(railweave("show", job["id"], "--time", "--json")[1])["time"]
    assert sum(time["parts_s"].values()) == pytest.approx(time["wall_s"], rel=0.01)
    assert time["wall_s"] == pytest.approx(job["ended_s"] - job["submitted_s"], rel=0.01)
    assert 0 < time["effective_ratio"] < 1 and time["faults"] == []
    assert "effective" in railweave("show", job["id"], "--time")[1]
    explained = json.loads(railweave("explain", job["id"], "--json")[1])
    by_kind = explained["traffic_bytes_by_kind"]
    assert by_kind["tp all_gather"]["node"] > 0 and by_kind["tp all_gather"]["spine"] == 0
    assert "tp all_gather" in railweave("explain", job["id"])[1]
    assert job["id"] in railweave("jobs", "--state", "succeeded")[1]
    assert job["id"] not in railweave("jobs", "--state", "FAILED")[1]


def test_what_a_plan_saved_is_submitted_and_runs_where_its_split_says(
    railweave: Any, tmp_path: Path
) -> None:
    planned, saved = tmp_path / "two-pods.yaml", tmp_path / "best.json"
    planned.write_text(TWO_PODS)
    code, out, err = railweave(
        *("plan", "--model", "llama-3-8b", "--cluster", str(planned), "--global-batch", "16"),
        *("--sequence", "2048", "--tp", "2", "--pp", "2", "--dp", "2", "--keep", "1"),
        *("--schedule", "1f1b", "--save-workload", str(saved)),
    )
    assert code == 0, out + err
    workload = load_workload(saved)
    job = Job(name="by hand", entrypoint="true", workload=workload)
    assert job.graph() == build_pcg(workload)
    script = "import os; print(os.environ['RANK'], os.environ['WORLD_SIZE'])"
    code, out, err = railweave(
        *("submit", "--name", "planned", "--workload", str(saved), "--wait", "--json"),
        *("--", *PYTHON, script),
    )
    assert code == 0, out + err
    found = json.loads(out)
    assert (found["state"], found["devices"]) == ("SUCCEEDED", 8)
    assert railweave("logs", found["id"], "--rank", "7")[1] == "7 8\n"
    (attempt,) = json.loads(railweave("show", found["id"], "--json")[1])["attempts"]
    nodes = [node for node, _ in attempt["placement"]["devices"]]
    assert nodes[0::2] == nodes[1::2] and len(set(nodes)) == 4
    pods = {node.name: node.domains["pod"] for node in NODES}
    place = [pods[node] for node in nodes]
    stages = place[:4], place[4:]
    assert all(set(stage) == {"p0"} or set(stage) == {"p1"} for stage in stages)
    traffic = json.loads(railweave("explain", found["id"], "--json")[1])["traffic_bytes_by_kind"]
    sent = {group.name.split("/")[0] for group in build_pcg(workload).groups}
    assert {name.split()[0] for name in traffic} == sent


def test_a_job_with_constraints_is_placed_and_after_a_lost_node_placed_again_as_they_say(
    railweave: Any, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    def well() -> bool:
        nodes = json.loads(railweave("status", "--json")[1])["nodes"]
        there = {node["name"] for node in nodes if node["state"] == "ok"}
        return there >= {node.name for node in NODES}

    wait_until(well, 90, "every node is well")
    script = (
        "import os, pathlib, sys, time; attempt = os.environ['RAILWEAVE_ATTEMPT']; "
        "pathlib.Path('up-' + attempt + '-' + os.environ['RANK']).touch(); "
        "sys.exit(0) if attempt != '1' else time.sleep(600)"
    )
    constraints = tmp_path / "constraints.yaml"
    constraints.write_text(
        "format: railweave.constraints/1\nat_most: {nodes: 1, tier: pod}\nexcluded_nodes: [b1]\n"
    )
    code, out, err = railweave(
        *("submit", "--devices", "4", "--constraints", str(constraints), "--spares", "1"),
        *("--segments", "2:node", "--pin", "0=a1", "--working-dir", str(tmp_path)),
        *("--", *PYTHON, script),
    )
    assert code == 0, err
    job_id = out.strip()

    def show() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(railweave("show", job_id, "--json")[1])
        return found

    def devices(attempt: dict[str, Any]) -> list[tuple[str, int]]:
        return [(node, device) for node, device in attempt["placement"]["devices"]]

    wait_until(lambda: len(list(tmp_path.glob("up-1-*"))) == 4, 120, "its ranks run")
    before = show()
    asked = parse_constraints(before["constraints"])
    assert asked == Constraints(
        at_most=AtMost(nodes=1, tier="pod"),
        segments=Segments(ranks=2, tier="node"),
        pinned=(Pin(rank=0, node="a1"),),
        excluded_nodes=("b1",),
        spares=1,
    )
    whole = Cluster.parse(railweave("topology", "--json")[1])
    whole = with_free(whole, {node.name: tuple(range(node.devices)) for node in whole.nodes})
    placed = devices(before["attempts"][0])
    assert asked.broken(whole, placed) == []
    spares = before["attempts"][0]["placement"]["spares"]
    assert len(spares) == 1 and spares[0] not in {"b1", *(node for node, _ in placed)}
    words = "at most 1 node in one pod; every 2 ranks in a row in one node; rank 0 on a1; not on b1"
    for verb in ("show", "explain"):
        shown = " ".join(railweave(verb, job_id)[1].split())
        assert f"constraints: {words}; 1 spare node" in shown
        assert f"spares: {spares[0]}" in shown
    explained = json.loads(railweave("explain", job_id, "--json")[1])
    assert explained["spares"] == spares
    assert parse_constraints(explained["constraints"]) == asked

    cluster.kill_node(placed[2][0])
    wait_until(lambda: show()["ended_s"] is not None, 240, "the job is over")
    after = show()
    assert after["state"] == "SUCCEEDED"
    assert len(after["attempts"]) >= 2  # a launch may be called off once more
    for attempt in after["attempts"][1:]:
        again = devices(attempt)
        assert asked.model_copy(update={"spares": 0}).broken(whole, again) == []
        assert again[:2] == placed[:2]
        assert {node for node, _ in again[2:]} == {"b0", "spare"} - {placed[2][0]}


def test_a_node_is_set_aside_listed_and_released(railweave: Any) -> None:
    code, out, err = railweave("nodes", "set-aside", "a0", "--reason", "new fan", "--for", "2h")
    assert (code, err) == (0, "") and "a0 is set aside for 2 h" in out
    nodes = {node["name"]: node for node in json.loads(railweave("nodes", "--json")[1])}
    assert {node.name for node in NODES} <= nodes.keys()
    assert (nodes["a0"]["out"], nodes["a0"]["out_reason"]) == ("operator", "new fan")
    assert (nodes["a0"]["state"], nodes["a0"]["free"]) == ("away", 0)
    assert nodes["a0"]["until_s"] - nodes["a0"]["since_s"] == pytest.approx(7200)
    assert nodes["b1"]["out"] is None
    assert "new fan" in railweave("nodes")[1]
    assert railweave("nodes", "release", "a0")[0] == 0
    code, _, err = railweave("nodes", "release", "a0")
    assert code == 1 and "not set aside" in err
    (a0,) = [n for n in json.loads(railweave("nodes", "--json")[1]) if n["name"] == "a0"]
    assert (a0["out"], a0["faults"]) == (None, [])
    code, _, err = railweave("nodes", "set-aside", "nowhere", "--reason", "none")
    assert code == 1 and "no node 'nowhere'" in err and "a0" in err
    assert railweave("nodes", "set-aside", "a0", "--reason", "x", "--for", "2 weeks")[0] == 2


def test_a_job_that_fails_is_code_1_with_its_reason(railweave: Any) -> None:
    code, out, err = railweave(
        *("submit", "--devices", "1", "--max-restarts", "0", "--wait"),
        *("--", *PYTHON, "raise SystemExit(7)"),
    )
    assert code == 1
    job_id = out.splitlines()[0]
    assert f"{job_id} is FAILED" in err and "7" in err


def test_down_is_refused_while_a_job_runs_and_cancel_ends_it(railweave: Any) -> None:
    script = (
        "import time; from railweave.agents import report; "
        "report(3, loss=0.5); print('up', flush=True); time.sleep(600)"
    )
    code, out, _ = railweave("submit", "--devices", "2", "--", *PYTHON, script)
    assert code == 0
    job_id = out.strip()
    wait_until(
        lambda: railweave("logs", job_id, "--rank", "1")[1] == "up\n", 60, "the job's rank 1 runs"
    )
    ranks = wait_until(
        lambda: [
            each
            for each in json.loads(railweave("ranks", job_id, "--json")[1])
            if each["step"] == 3
        ][1:],
        60,
        "both ranks tell their step",
    )
    assert (ranks[0]["rank"], ranks[0]["state"], ranks[0]["loss"]) == (1, "running", 0.5)
    assert "2 ranks: 2 running; step 3" in railweave("ranks", job_id)[1]
    code, _, err = railweave("down")
    assert code == 1 and job_id in err and "--cancel-jobs" in err
    assert "held by" in railweave("status")[1] and f"{job_id}:" in railweave("status")[1]
    code, out, _ = railweave("cancel", job_id, "--wait", "--json")
    assert code == 0 and json.loads(out)["state"] == "CANCELLED"


def test_logs_are_followed_from_one_attempt_to_the_next(railweave: Any, tmp_path: Path) -> None:
    script = (
        "import os, sys; attempt = os.environ['RAILWEAVE_ATTEMPT']; "
        "print('attempt', attempt, flush=True); sys.exit(attempt == '1')"
    )
    code, out, _ = railweave("submit", "--devices", "1", "--", *PYTHON, script)
    assert code == 0
    assert railweave("logs", out.strip(), "--follow")[1] == "attempt 1\nattempt 2\n"
    assert railweave("logs", out.strip(), "--attempt", "1")[1] == "attempt 1\n"
    code, out, err = railweave("logs", out.strip(), "--attempt", "3")
    assert (code, out) == (1, "") and "no attempt 3" in err


def test_a_job_that_waits_says_for_what(railweave: Any) -> None:
    sleep = ("--", "sleep", "600")
    railweave("submit", "--devices", "8", *sleep)
    waiting = railweave("submit", "--devices", "4", *sleep)[1].strip()
    wait_until(
        lambda: (
            "4" in railweave("explain", waiting)[1] and "free" in railweave("explain", waiting)[1]
        ),
        30,
        "the second job waits for devices",
    )
    assert "PENDING" in railweave("explain", waiting)[1]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["show", "no-such-job"], 1, "no-such-job"),
        (["logs", "no-such-job"], 1, "no-such-job"),
        (["cancel", "no-such-job"], 1, "no-such-job"),
        (["explain", "no-such-job"], 1, "no-such-job"),
        (["submit", "--devices", "2"], 2, "COMMAND"),
        (["submit", "--", "true"], 2, "found none of them"),
        (["submit", "--devices", "2", "--tp", "2", "--", "true"], 2, "--devices and --tp"),
        (["submit", "--devices", "1", "--env", "X", "--", "true"], 2, "NAME=VALUE"),
        (["submit", "--devices", "1", "--env", "RANK=1", "--", "true"], 2, "env.RANK"),
        (["submit", "--pcg", "/no/such", "--", "true"], 2, "No such file"),
        (["jobs", "--state", "DONE"], 2, "DONE"),
        (["up", "--embedded"], 2, "RAY_ADDRESS is set"),
    ],
)
def test_wrong_requests_say_what_is_wrong(
    railweave: Any, arguments: list[str], code: int, words: str
) -> None:
    found, out, err = railweave(*arguments)
    assert (found, out) == (code, "")
    assert words in err


def test_up_on_a_cluster_with_a_daemon_changes_nothing(
    railweave: Any, session_cluster: EmbeddedCluster
) -> None:
    before = json.loads(railweave("status", "--json")[1])["daemon"]
    code, out, _ = railweave("up", "--state-dir", str(session_cluster.state_dir / "cli-daemon"))
    assert code == 0 and "10 devices" in out
    assert json.loads(railweave("status", "--json")[1])["daemon"]["pid"] == before["pid"]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"RAY_ADDRESS": None}, "railweave up --embedded"),
        ({"RAY_ADDRESS": "127.0.0.1:1"}, "no Ray cluster answers at 127.0.0.1:1"),
        ({"RAY_AUTH_MODE": None, "RAY_AUTH_TOKEN_PATH": None, "HOME": "/nonexistent"}, "a token"),
    ],
)
def test_a_cluster_that_cannot_be_reached_is_code_1_with_what_to_set(
    cluster: EmbeddedCluster, changed: dict[str, str | None], words: str, tmp_path: Path
) -> None:
    environment: dict[str, str | None] = {**os.environ, "RAILWEAVE_HOME": str(tmp_path), **changed}
    done = subprocess.run(
        [*COMMAND, "status"],
        env={name: value for name, value in environment.items() if value is not None},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert words in done.stderr and "Traceback" not in done.stderr


def test_an_embedded_cluster_stays_until_down(nothing_left: Path) -> None:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    environment = kept | {"RAILWEAVE_HOME": str(nothing_left / "embedded-home")}

    def call(*arguments: str) -> str:
        return subprocess.run(
            [*COMMAND, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=180,
            check=True,
        ).stdout

    up = json.loads(call("up", "--embedded", "--nodes", "1", "--devices-per-node", "3", "--json"))
    assert {node["name"]: node["devices"] for node in up["nodes"]} == {"head": 0, "n0": 3}
    job = json.loads(call("submit", "--devices", "3", "--wait", "--json", "--", "true"))
    assert job["state"] == "SUCCEEDED"
    assert "the embedded cluster has ended" in call("down")
    again = subprocess.run(
        [*COMMAND, "status"], env=environment, capture_output=True, text=True, timeout=60
    )
    assert again.returncode == 1 and "no embedded cluster is running" in again.stderr


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_up_brings_the_head_of_an_embedded_cluster_back_and_jobs_go_on(
    nothing_left: Path, tmp_path: Path
) -> None:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    home = nothing_left / "headless-home"
    environment = kept | {"RAILWEAVE_HOME": str(home)}

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *arguments], env=environment, capture_output=True, text=True, timeout=240
        )

    up = ("up", "--embedded", "--nodes", "1", "--devices-per-node", "2", "--json")
    assert call(*up).returncode == 0
    assert "is running already" in call(*up).stderr
    waits = f"import os, time\nwhile not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.05)"
    submitted = call("submit", "--devices", "2", "--json", "--", *PYTHON, waits)
    job_id = json.loads(submitted.stdout)["id"]

    def shown() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(call("show", job_id, "--json").stdout)
        return found

    wait_until(lambda: shown()["state"] == "RUNNING", 120, "the job runs")
    cluster = EmbeddedCluster.attach(home / "embedded.json")
    assert cluster is not None
    cluster.kill_node(HEAD)
    refused = call("down")
    assert refused.returncode == 1 and "railweave up --embedded" in refused.stderr
    back = call(*up)
    assert back.returncode == 0 and "starting the head" in back.stderr, back.stderr
    assert [node["state"] for node in json.loads(back.stdout)["nodes"]] == ["ok", "ok"]
    assert shown()["state"] == "RUNNING"
    (tmp_path / "go").touch()
    wait_until(lambda: shown()["state"] == "SUCCEEDED", 120, "the job has ended")
    assert len(shown()["attempts"]) == 1
    assert call("down").returncode == 0
