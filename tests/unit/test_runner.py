"""What a node's runner promises: fencing, one start a launch, guards found again, bounded logs."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from node_bench import NodeBench, node_bench
from railweave.agents import journal
from railweave.agents.attempt import NodePhase, Refused
from railweave.agents.environment import rank_environment
from railweave.agents.logs import last_lines, log_path
from railweave.agents.processes import process
from railweave.agents.runner import Runner
from railweave.agents.spec import Spec, remove_dead_sockets
from waiting import wait_until

# An agent's side of a node in a process of its own, so that it can be killed.
AGENT = """
import sys, time
from railweave.agents.attempt import NodeLaunch
from railweave.agents.runner import Runner
state_dir, raylet, launch = sys.argv[1:]
runner = Runner(state_dir, "n0", int(raylet))
print(runner.launch(NodeLaunch.model_validate_json(launch)).phase.value, flush=True)
time.sleep(1000)
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeBench]:
    with node_bench(tmp_path) as bench:
        yield bench


def test_ranks_do_not_notice_that_the_agent_is_killed_and_a_new_one_finds_them(
    node: NodeBench,
) -> None:
    launch = node.launch_of("sleep", "1000", ranks=2)
    agent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            AGENT,
            node.state_dir,
            str(node.raylet.pid),
            launch.model_dump_json(),
        ],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert agent.stdout
    assert agent.stdout.readline() == "running\n"
    ranks = {rank.pid for rank in node.runner.status("job", 1).ranks}
    os.killpg(agent.pid, signal.SIGKILL)
    agent.wait()
    agent.stdout.close()

    again = Runner(node.state_dir, "n0", node.raylet.pid)
    assert again.held() == (("job", 1),)
    status = again.status("job", 1)
    assert status.phase is NodePhase.RUNNING
    assert {rank.pid for rank in status.ranks} == ranks == {entry.pid for entry in node.alive()}
    assert again.launch(launch).ranks == status.ranks
    assert again.stop("job", 1, grace_s=5).killed == 2
    assert node.alive() == []
    assert again.held() == ()
    again.close()


def test_the_same_launch_starts_nothing_twice(node: NodeBench) -> None:
    launch = node.launch_of("sh", "-c", "echo started >> starts; exec sleep 1000")
    with ThreadPoolExecutor(4) as pool:
        states = list(pool.map(lambda _: node.runner.launch(launch), range(4)))
    assert {state.ranks[0].pid for state in states} == {states[0].ranks[0].pid}
    assert node.wait_for_file("starts") == "started\n"
    node.runner.stop("job", 1, grace_s=1)
    assert node.runner.launch(launch).phase is NodePhase.STOPPED
    assert (node.folder / "starts").read_text() == "started\n"


def test_an_attempt_number_is_used_once(node: NodeBench) -> None:
    node.launch("true", attempt=3)
    node.ended(3)
    for attempt in (1, 2):
        with pytest.raises(
            Refused, match=f"attempt {attempt} of job job is fenced on n0: attempt 3"
        ):
            node.launch("true", attempt=attempt)
    with pytest.raises(Refused, match="was launched on n0 with other settings"):
        node.launch("false", attempt=3)
    assert node.launch("true", attempt=4).attempt == 4


def test_a_stop_overtakes_a_launch_that_is_still_on_its_way(node: NodeBench) -> None:
    assert node.runner.stop("job", 2, grace_s=1).killed == 0
    assert node.runner.status("job", 2).phase is NodePhase.UNKNOWN
    with pytest.raises(Refused, match="attempt 2 was launched or stopped here"):
        node.launch("true", attempt=2)


def test_the_fence_holds_after_a_restart_and_after_forgetting(node: NodeBench) -> None:
    node.launch("true", attempt=2)
    node.ended(2)
    node.runner.forget("job", 2)
    assert node.runner.status("job", 2).phase is NodePhase.UNKNOWN
    again = Runner(node.state_dir, "n0", node.raylet.pid)
    with pytest.raises(Refused, match="fenced"):
        again.launch(node.launch_of("true", attempt=2))
    again.close()


def test_a_guard_that_was_stopped_before_it_was_up_starts_no_rank(node: NodeBench) -> None:
    launch = node.launch_of("sh", "-c", "echo started > started")
    folder = node.state_dir / "jobs" / "job" / "attempt-1"
    folder.parent.mkdir(parents=True)
    Spec.create(folder, launch)  # an agent that died between writing this and starting the guard
    node.runner.stop("job", 1, grace_s=1)
    status = node.runner.launch(launch)
    assert (status.phase, status.reason) == (NodePhase.STOPPED, "stopped before its guard was up")
    node.runner._start_guard(folder)  # the late one
    assert not (folder / "rank-0.log").exists()
    assert not (node.folder / "started").exists()


def test_an_agent_that_died_before_its_guard_was_up_can_be_asked_again(node: NodeBench) -> None:
    launch = node.launch_of("true")
    folder = node.state_dir / "jobs" / "job" / "attempt-1"
    folder.parent.mkdir(parents=True)
    Spec.create(folder, launch)
    assert node.runner.status("job", 1).phase is NodePhase.UNKNOWN
    node.runner.launch(launch)
    assert node.ended().ranks[0].exit_code == 0


def test_a_new_attempt_waits_for_the_end_of_the_one_before(node: NodeBench) -> None:
    node.launch("sleep", "1000")
    with pytest.raises(Refused, match="attempt 1 of job job still has processes on n0"):
        node.launch("sleep", "1000", attempt=2)
    node.runner.stop("job", 1, grace_s=1)
    assert node.launch("sleep", "1000", attempt=2).phase is NodePhase.RUNNING


def test_a_device_is_never_given_to_two_jobs(node: NodeBench) -> None:
    node.launch("sleep", "1000", ranks=2)
    with pytest.raises(Refused, match="device 0, 1 of n0 is in use by attempt 1 of job job"):
        node.launch("true", job_id="other", ranks=3)
    elsewhere = [{"rank": 0, "local_rank": 0, "device": 2}]
    assert node.launch("true", job_id="another", ranks=elsewhere).phase is not NodePhase.UNKNOWN


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"node": "n1"}, "this is node n0, the launch is for n1"),
        ({"working_dir": "relative"}, "must be an absolute path"),
        (
            {"ranks": [{"rank": 0, "local_rank": 0, "device": 0}] * 2},
            "a rank is given twice",
        ),
    ],
)
def test_launches_that_make_no_sense_are_refused(
    node: NodeBench, change: dict[str, object], said: str
) -> None:
    with pytest.raises(Refused, match=said):
        node.launch("true", **change)


@pytest.mark.parametrize("job_id", ["..", "a/b", "", ".hidden", "x" * 64, "a\n", "a\0"])
def test_ids_cannot_lead_out_of_the_state_folder(node: NodeBench, job_id: str) -> None:
    for call in (
        lambda: node.runner.status(job_id, 1),
        lambda: node.runner.stop(job_id, 1, 0),
        lambda: node.runner.read_log(job_id, 1, 0),
        lambda: node.runner.forget(job_id, 1),
    ):
        with pytest.raises(Refused, match="is not a job id"):
            call()
    with pytest.raises(Refused, match="is not an attempt number"):
        node.runner.status("job", 0)


def test_a_long_poll_returns_on_the_change_and_not_before(node: NodeBench) -> None:
    node.launch("sh", "-c", "while [ ! -e go ]; do sleep 0.02; done; exit 4")
    before = node.runner.status("job", 1)
    began = time.monotonic()
    assert node.runner.status("job", 1, before.seq, wait_s=0.3).seq == before.seq
    assert time.monotonic() - began >= 0.3
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(node.runner.status, "job", 1, before.seq, 60.0)
        (node.folder / "go").touch()
        after = waiting.result(10)
    assert after.seq > before.seq
    assert after.ranks[0].exit_code == 4
    assert node.runner.status("job", 1, 10**6, wait_s=60).seq == node.ended().seq


def test_a_guard_that_hangs_is_killed_by_stop_and_nothing_is_left(
    node: NodeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("railweave.agents.runner.KILL_WAIT_S", 0.1)
    monkeypatch.setattr("railweave.agents.runner._ANSWER_MARGIN_S", 0.2)
    node.launch("sh", "-c", "sleep 1000 & sleep 1000", ranks=2)
    wait_until(lambda: len(node.alive()) == 6, 30, "everything runs")
    guard = node.guard_pid()
    os.kill(guard, signal.SIGSTOP)
    report = node.runner.stop("job", 1, grace_s=0.1)
    assert report.survivors == ()
    assert node.gone(guard)
    assert node.alive() == []
    assert node.runner.status("job", 1).phase is NodePhase.STOPPED


def test_a_guard_whose_socket_was_removed_still_stops_gracefully(node: NodeBench) -> None:
    node.launch("sh", "-c", "trap 'exit 5' TERM; echo set > ready; while :; do sleep 0.02; done")
    node.wait_for_file("ready")
    spec = Spec.read(node.state_dir / "jobs" / "job" / "attempt-1")
    assert spec
    os.unlink(spec.socket)
    assert node.runner.stop("job", 1, grace_s=10).survivors == ()
    assert node.runner.status("job", 1).ranks[0].exit_code == 5


def test_a_journal_that_a_crash_cut_short_is_read_up_to_the_cut(node: NodeBench) -> None:
    node.launch("sleep", "1000")
    guard = node.guard_pid()
    os.kill(guard, signal.SIGKILL)
    wait_until(lambda: node.gone(guard), 30, "the guard is dead")
    path = node.state_dir / "jobs" / "job" / "attempt-1" / "journal.jsonl"
    with path.open("ab") as stream:
        stream.write(b'{"seq": 99, "phase": "en')
    again = Runner(node.state_dir, "n0", node.raylet.pid)
    assert again.status("job", 1).phase is NodePhase.STOPPED
    assert [record["seq"] for record in journal.read(path)] == [1, 2, 3, 4]
    again.close()


def test_sockets_of_killed_guards_are_removed_and_those_of_living_ones_kept(
    node: NodeBench,
) -> None:
    node.launch("sleep", "1000")
    spec = Spec.read(node.state_dir / "jobs" / "job" / "attempt-1")
    assert spec
    dead = Path(spec.socket).with_name("0123456789abcdef.sock")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.bind(str(dead))
    remove_dead_sockets(older_than_s=3600)
    assert dead.exists()
    remove_dead_sockets(older_than_s=0)
    assert not dead.exists()
    assert node.runner.status("job", 1, after_seq=1).phase is NodePhase.RUNNING
    assert Path(spec.socket).exists()


def test_tending_ends_what_a_killed_guard_left(node: NodeBench) -> None:
    node.launch("sh", "-c", "setsid sleep 1000 & sleep 1000")
    wait_until(lambda: len(node.alive()) == 3, 30, "everything runs")
    os.kill(node.guard_pid(), signal.SIGKILL)
    wait_until(lambda: node.runner.tend() or not node.alive(), 30, "nothing is left")
    assert node.runner.held() == ()


def test_a_full_disk_does_not_lose_how_an_attempt_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.jsonl"
    written = journal.Journal.create(path, {"seq": 1, "phase": "starting"})
    real_write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: (_ for _ in ()).throw(OSError(28, "full")))
    written.append({"seq": 2, "phase": "ended"})
    with pytest.raises(OSError, match="full"):
        written.flush()
    monkeypatch.setattr(os, "write", lambda fd, data: real_write(fd, data[:3]))
    written.flush()
    written.close()
    assert [record["seq"] for record in journal.read(path)] == [1, 2]


def test_only_one_guard_can_have_an_attempt(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    first = journal.Journal.create(path, {"seq": 1, "phase": "starting"})
    with pytest.raises(FileExistsError):
        journal.Journal.create(path, {"seq": 1, "phase": "starting"})
    assert journal.Journal.take_over(path) is None
    first.close()
    taken = journal.Journal.take_over(path)
    assert taken
    taken.close()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["journal.jsonl"]


def test_logs_are_read_in_parts_that_join_to_the_whole(node: NodeBench) -> None:
    text = "Grüße, 世界 🚂\n" * 50
    (node.folder / "text").write_text(text)
    node.launch("cat", "text")
    node.ended()
    for limit in (1, 2, 5, 64, 10**9):
        parts, offset = [], 0
        while offset < len(text.encode()):
            chunk = node.runner.read_log("job", 1, 0, offset, limit)
            assert chunk.next_offset > offset
            parts.append(chunk.text)
            offset = chunk.next_offset
        assert limit < 4 or "".join(parts) == text
    assert node.runner.read_log("job", 1, 0, offset=-6).text.endswith("🚂\n")
    assert node.runner.read_log("job", 1, 0, offset=10**9).text == ""
    with pytest.raises(Refused, match="no log of rank 5 of attempt 1 of job job on node n0"):
        node.runner.read_log("job", 1, 5)


def test_terminal_codes_do_not_reach_the_last_lines(node: NodeBench) -> None:
    node.launch("printf", r"\033[31mred\033[0m\n50%%\r100%%\r\nbell\a\nno newline", ranks=1)
    node.ended()
    path = log_path(node.state_dir / "jobs" / "job" / "attempt-1", 0)
    assert last_lines(path) == ["red", "100%", "bell", "no newline"]
    assert last_lines(path, 1) == ["no newline"]
    assert last_lines(path.with_name("absent")) == []


def test_ended_attempts_are_pruned_by_age_and_running_ones_never(node: NodeBench) -> None:
    node.launch("true")
    node.ended()
    node.launch("sleep", "1000", attempt=2)
    assert node.runner.prune(keep_s=3600, now_s=time.time()) == 0
    assert node.runner.prune(keep_s=3600, now_s=time.time() + 7200) == 1
    assert [status.attempt for status in node.runner.attempts()] == [2]
    with pytest.raises(Refused, match="attempt 2 of job job is running on n0; stop it first"):
        node.runner.forget("job", 2)


def test_ranks_inherit_nothing_that_ray_set_for_its_worker() -> None:
    worker = {
        "PATH": "/usr/bin:/opt/venv/bin",
        "HOME": "/home/user",
        "RAY_AUTH_TOKEN": "secret",
        "RAY_JOB_ID": "1",
        "__RAYLET_X": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
        "PYTHONBREAKPOINT": "ray.util.rpdb.set_trace",
        "PWD": "/where/the/raylet/was/started",
        "ARRAY_SIZE": "4",
    }
    assert rank_environment(worker, "/opt/venv/bin/python") == {
        "PATH": "/opt/venv/bin:/usr/bin",
        "HOME": "/home/user",
        "ARRAY_SIZE": "4",
    }


def test_secrets_of_the_cluster_do_not_reach_the_ranks(
    node: NodeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "a-secret-token")
    node.launch("env")
    node.ended()
    assert "a-secret-token" not in node.runner.read_log("job", 1, 0).text
    for path in (node.state_dir / "jobs").rglob("*"):
        assert not path.is_file() or b"a-secret-token" not in path.read_bytes()


def test_files_of_ranks_are_made_with_the_usual_umask_and_logs_are_private(
    node: NodeBench,
) -> None:
    node.launch("touch", "made")
    node.ended()
    umask = os.umask(0o022)
    os.umask(umask)
    assert (node.folder / "made").stat().st_mode & 0o777 == 0o666 & ~umask
    folder = node.state_dir / "jobs" / "job" / "attempt-1"
    assert (folder / "rank-0.log").stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o077 == 0


def test_guards_are_light_and_start_fast(node: NodeBench) -> None:
    began = time.monotonic()
    node.launch("sleep", "1000")
    took_s = time.monotonic() - began
    status = Path(f"/proc/{node.guard_pid()}/status").read_text()
    resident_kib = int(status.split("VmRSS:")[1].split()[0])
    assert resident_kib < 40_000
    assert took_s < 30
    found = process(node.guard_pid())
    assert found
    assert found.parent_pid != os.getpid()
    assert os.getsid(node.guard_pid()) == node.guard_pid()


def test_many_threads_can_wait_and_read_at_once(node: NodeBench) -> None:
    node.launch("sh", "-c", "while [ ! -e go ]; do sleep 0.02; done", ranks=4)
    seq = node.runner.status("job", 1).seq
    results: list[NodePhase] = []
    threads = [
        threading.Thread(
            target=lambda: results.append(node.runner.status("job", 1, seq + 10, 60).phase)
        )
        for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    (node.folder / "go").touch()
    for thread in threads:
        thread.join(20)
    assert results == [NodePhase.ENDED] * 16


def test_the_launch_file_is_plain_json_with_the_command_as_a_list(node: NodeBench) -> None:
    node.launch("echo", "a b", "$HOME")
    node.ended()
    path = node.state_dir / "jobs" / "job" / "attempt-1" / "launch.json"
    assert json.loads(path.read_text())["launch"]["command"] == ["echo", "a b", "$HOME"]
    assert node.runner.read_log("job", 1, 0).text == "a b $HOME\n"
