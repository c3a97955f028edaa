"""Jobs on a real cluster: real agents, real ranks, and what who submits them is told."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import ray
from job_bench import TOKEN, Bench
from railweave.agents import processes
from railweave.agents.fleet import NAMESPACE, agent_name
from railweave.agents.self_test import DISK_BYTES
from railweave.scheduler.client import Client
from railweave.scheduler.connection import NoDaemon
from railweave.scheduler.embedded import EmbeddedCluster
from railweave.scheduler.job import Job
from railweave.scheduler.lifecycle import JobState
from railweave.scheduler.service import start_daemon
from waiting import wait_until


def test_without_a_daemon_the_client_says_how_to_start_one(cluster: EmbeddedCluster) -> None:
    with Client() as client, pytest.raises(NoDaemon, match="railweave up"):
        client.status()


def test_a_daemon_whose_store_belongs_to_another_program_does_not_start(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    (tmp_path / "railweave.db").write_text("not a database, but long enough to look at\n" * 50)
    with pytest.raises(RuntimeError, match="not a SQLite file"):
        start_daemon(tmp_path)
    with Client() as client, pytest.raises(NoDaemon):
        client.status()


CONNECT = """
import sys, time
from railweave.scheduler import Client
began = time.monotonic()
try:
    Client(*sys.argv[1:])
except Exception as error:
    print(type(error).__name__, error, f"within {time.monotonic() - began:.0f} s")
"""


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"RAY_ADDRESS": ""}, "NoCluster no Ray cluster: set RAY_ADDRESS"),
        ({"RAY_ADDRESS": "127.0.0.1:9"}, "NoCluster no Ray cluster answers at 127.0.0.1:9"),
        ({"RAY_AUTH_TOKEN_PATH": "/no/token"}, "WrongToken RAY_AUTH_TOKEN_PATH names /no/token"),
        ({"RAY_AUTH_TOKEN_PATH": "wrong"}, "does not accept this process's token"),
        ({"RAY_AUTH_MODE": "disabled"}, "WrongToken the Ray cluster at .* asks for a token"),
    ],
)
def test_who_cannot_connect_is_told_why_within_seconds(
    cluster: EmbeddedCluster, tmp_path: Path, settings: dict[str, str], message: str
) -> None:
    (tmp_path / "wrong").write_text("0" * 64)
    environment = {**os.environ, **cluster.environment(), **settings}
    ran = subprocess.run(
        [sys.executable, "-c", CONNECT],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert re.search(message, ran.stdout), ran.stdout + ran.stderr
    assert int(ran.stdout.split()[-2]) < 15  # Ray itself needs 20 s at least, or never gives up


def test_a_job_runs_where_it_was_placed_in_torchruns_environment(bench: Bench) -> None:
    job = bench.submit("print('done', flush=True)", devices=4, env={TOKEN: bench.token, "A": "b c"})
    assert bench.ends(job) is JobState.SUCCEEDED, job.explain()
    placement = job.placement
    assert placement is not None
    assert len({node for node, _ in placement.devices}) == 2
    ports = set()
    for rank, (node, device) in enumerate(placement.devices):
        found = bench.environment(1, rank)
        assert (found["RAILWEAVE_NODE"], found["RAILWEAVE_DEVICE"]) == (node, str(device))
        assert (found["RANK"], found["WORLD_SIZE"]) == (str(rank), "4")
        assert found["CUDA_VISIBLE_DEVICES"].split(",")[int(found["LOCAL_RANK"])] == str(device)
        assert found["TORCHELASTIC_RUN_ID"] == found["RAILWEAVE_JOB_ID"] == job.id
        assert (found["RAILWEAVE_RESUME_FROM"], found["A"]) == ("", "b c")
        assert found["PATH"].split(":")[0] == os.path.dirname(sys.executable)
        assert "RAY_AUTH_TOKEN_PATH" not in found
        ports.add((found["MASTER_ADDR"], found["MASTER_PORT"]))
        assert job.logs(rank).splitlines() == [f"rank {rank} of attempt 1", "done"]
    assert len(ports) == 1
    assert bench.kinds(job) == [
        *("submitted", "launch", "preflight", "resume", "launched", "running", "succeed")
    ]
    with pytest.raises(LookupError, match="ranks 0 to 3, not 9"):
        job.logs(9)


def test_a_failing_rank_is_started_again_and_in_the_end_its_last_lines_say_why(
    bench: Bench,
) -> None:
    deed = "until(f'go-{attempt}')\nprint('out of luck')\nif rank == 2: sys.exit(7)\nuntil('never')"
    job = bench.submit(deed, max_restarts=1)
    for number in (1, 2):

        def runs(number: int = number) -> bool:
            return job.state is JobState.RUNNING and job.attempts[-1].number == number

        wait_until(runs, 60, f"attempt {number} runs")
        bench.touch(f"go-{number}")
    assert bench.ends(job) is JobState.FAILED
    assert [attempt.number for attempt in job.attempts] == [1, 2]
    for attempt in job.attempts:
        cause = attempt.cause or {}
        assert (cause["kind"], cause["rank"], cause["exit_code"]) == ("rank_exit", 2, 7)
        assert cause["last_lines"][-1] == "out of luck"
        assert attempt.running_s is not None
        assert attempt.fault_seen_s is not None and attempt.stopped_s is not None
        assert attempt.started_s <= attempt.running_s <= attempt.stopped_s
        assert attempt.fault_seen_s <= attempt.stopped_s
    before, after = bench.environment(1, 0), bench.environment(2, 0)
    assert after["TORCHELASTIC_RESTART_COUNT"] == "1"
    for fenced in ("MASTER_PORT", "RAILWEAVE_RUN_ID"):
        assert before[fenced] and before[fenced] != after[fenced]
        assert bench.environment(2, 3)[fenced] == after[fenced]
    assert "ended with exit code 7" in job.explain() and "out of luck" in job.explain()
    assert [kind for kind in bench.kinds(job) if kind in ("fault", "stopped", "launch")] == [
        "launch",
        "fault",
        "stopped",
    ] * 2


def test_an_error_that_follows_a_job_to_another_machine_ends_it_with_the_evidence(
    bench: Bench,
) -> None:
    deed = (
        "print('step=7 loss=1.0', flush=True)\n"
        "if rank == 1: sys.exit('ValueError: sample 7 has no label')"
    )
    job = bench.submit(deed, devices=2, max_restarts=10)
    assert bench.ends(job) is JobState.FAILED
    first, second, third = (each.placement["devices"][1][0] for each in job.attempts)
    assert first == second != third  # the second time it is tried elsewhere
    (given_up,) = [event for event in job.events() if event.kind == "give_up"]
    assert given_up.data["decision"] == "job_at_fault"
    evidence = [(each["node"], each["step"]) for each in given_up.data["evidence"]]
    assert evidence == [(first, 7), (second, 7), (third, 7)]
    assert "the job's own fault" in job.explain() and "sample 7 has no label" in job.explain()


def test_cancelling_leaves_no_process_not_even_of_a_rank_that_ignores_signals(
    bench: Bench,
) -> None:
    deed = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
pathlib.Path(f"deaf-{rank}-{os.getpid()}").touch()
until("never")
"""
    job = bench.submit(deed, devices=2)
    wait_until(lambda: len(list(bench.folder.glob("deaf-*"))) == 4, 60, "ranks and children run")
    job.cancel()
    assert bench.ends(job) is JobState.CANCELLED
    assert bench.alive() == []
    assert job.explain().startswith(f"{job.id} is CANCELLED: cancelled")
    job.cancel()
    assert job.state is JobState.CANCELLED


def test_cancelling_during_the_launch_ends_it_too(bench: Bench) -> None:
    job = bench.submit("until('never')")
    wait_until(lambda: job.state is not JobState.PENDING, 30, "it is being launched")
    job.cancel()
    assert bench.ends(job) is JobState.CANCELLED
    assert bench.alive() == []


def test_a_queued_job_says_for_what_it_waits_and_starts_when_that_is_free(bench: Bench) -> None:
    first = bench.submit("until('go')", devices=6)
    bench.until(first, JobState.RUNNING)
    second = bench.submit("until('go-2')", devices=6)
    third = bench.submit("pass", devices=1)
    urgent = bench.submit("pass", devices=5, priority=1)
    wait_until(lambda: "behind" in third.explain(), 30, "the third waits behind another")
    assert f"1st in the queue: needs 5 devices, 4 of 10 are free: {first.id} holds 6" in (
        urgent.explain().replace("first in", "1st in")
    )
    assert f"2nd in the queue: behind {urgent.id}" in second.explain()
    assert f"3rd in the queue: behind {urgent.id}" in third.explain()
    assert [e.message for e in urgent.events() if e.kind == "waiting"] == [
        f"needs 5 devices, 4 of 10 are free: {first.id} holds 6"
    ]
    bench.touch("go")
    assert bench.ends(first) is JobState.SUCCEEDED
    assert bench.ends(urgent) is JobState.SUCCEEDED
    bench.touch("go-2")
    assert bench.ends(second) is JobState.SUCCEEDED
    assert bench.ends(third) is JobState.SUCCEEDED
    assert urgent.attempts[0].started_s < second.attempts[0].started_s


def test_a_job_that_no_cluster_of_this_size_can_hold_fails_once_all_nodes_are_known(
    bench: Bench,
) -> None:
    job = bench.submit("pass", devices=11)
    assert bench.ends(job, 60) is JobState.FAILED
    assert "needs 11 devices, 10 are there in the whole cluster" in job.explain()
    graph = {
        "format": "railweave.pcg/1",
        "world_size": 1,
        "groups": [],
        "requires": [{"ranks": [0], "accelerator": "H800"}],
    }
    job = bench.submit("pass", devices=None, pcg=graph)
    assert bench.ends(job, 60) is JobState.FAILED
    assert "needs 1 H800 device, 0 are there" in job.explain()


def test_what_a_node_refuses_is_told_and_the_program_that_is_missing_named(bench: Bench) -> None:
    job = bench.submit("", entrypoint=["no-such-program"], devices=1, max_restarts=0)
    assert bench.ends(job) is JobState.FAILED
    assert "no command 'no-such-program'" in job.explain()


def test_a_checkpoint_folder_that_cannot_be_used_is_told_and_costs_no_restart(
    bench: Bench,
) -> None:
    (bench.folder / "file").touch()
    job = bench.submit("pass", devices=1, checkpoint_dir=bench.folder / "file" / "below")
    wait_until(lambda: "Not a directory" in job.explain(), 60, "it says what is wrong")
    assert job.explain().startswith(f"{job.id} is PENDING, first in the queue: cannot fence")
    assert "Traceback" not in job.explain()
    assert job.record.life.faults == 0
    job.cancel()
    assert bench.ends(job) is JobState.CANCELLED


def test_a_submission_repeated_after_a_lost_answer_queues_one_job(bench: Bench) -> None:
    job = Job(name="twice", entrypoint="true", devices=1, working_dir=bench.folder)
    connection = bench.client._connection
    for _ in range(2):
        connection.call("submit", "twice-1", job.to_json())
    assert [r.job_id for r in bench.client.jobs() if r.name == "twice"] == ["twice-1"]
    assert bench.ends(bench.client.job("twice-1")) is JobState.SUCCEEDED
    assert bench.client.job("twice-1").spec == job


def test_an_unknown_job_is_named(bench: Bench) -> None:
    with pytest.raises(LookupError, match="no job 'nope-1'"):
        bench.client.job("nope-1")


def test_a_probe_measures_every_tier(bench: Bench) -> None:
    lines: list[str] = []
    cluster = bench.client.probe(lines.append)
    assert [tier.name for tier in cluster.tiers] == ["pod", "spine"]
    assert {node.name: node.domains["pod"] for node in cluster.nodes} == {
        "a0": "p0",
        "a1": "p0",
        "b0": "p1",
        "b1": "p1",
        "spare": "p1",
    }
    assert all(tier.bandwidth > 1e6 and 0 < tier.latency < 0.1 for tier in cluster.tiers)
    assert any("pairs measured" in line for line in lines)


LOCAL = """
from railweave.scheduler import Client, Job
with Client.local(nodes=1, devices=2) as client:
    job = client.submit(Job(name="local", entrypoint=["echo", "hello"], devices=2))
    print(job.wait(120), job.logs(1).strip())
"""


def test_a_client_of_its_own_cluster_runs_a_job_and_leaves_nothing(tmp_path: Path) -> None:
    theirs = ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")
    environment = {name: value for name, value in os.environ.items() if name not in theirs}
    mark = {"RAILWEAVE_TEST_LOCAL": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", LOCAL],
        env=environment | mark,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert ran.stdout.splitlines()[-1:] == ["SUCCEEDED hello"], ran.stdout + ran.stderr
    left = processes.having("RAILWEAVE_TEST_LOCAL", str(tmp_path), processes.table().values())
    assert [entry for entry in left if entry.state != "Z"] == []


def test_a_node_that_fails_its_check_is_set_aside_and_the_job_placed_around_it(
    bench: Bench,
) -> None:
    first = bench.submit("pass", devices=4)
    assert bench.ends(first) is JobState.SUCCEEDED
    assert first.placement is not None
    bad = first.placement.devices[0][0]
    agent = ray.get_actor(agent_name(bad), NAMESPACE)
    pid = ray.get(agent.__ray_call__.remote(lambda self: os.getpid()), timeout=30)
    # Its disk takes no file as large as that of the check, and every smaller one.
    limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (DISK_BYTES // 2, limits[1]))
    try:
        careless = bench.submit("pass", devices=4, preflight=False)
        assert bench.ends(careless) is JobState.SUCCEEDED
        assert "preflight" not in bench.kinds(careless)
        job = bench.submit("pass", devices=4)
        assert bench.ends(job) is JobState.SUCCEEDED, job.explain()
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
    assert job.placement is not None
    assert bad not in {node for node, _ in job.placement.devices}
    failed, well = (event for event in job.events() if event.kind == "preflight")
    assert list(failed.data["wrong"]) == [bad] and "File too large" in failed.message
    assert well.data["wrong"] == {} and well.data["pairs"][0][2] is True
    assert set(well.data["nodes"]) == {node for node, _ in job.placement.devices}
    assert job.record.life.faults == 0
    assert bench.client.release(bad)
