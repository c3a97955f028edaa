"""What the guard promises about the processes of an attempt, with real processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from node_bench import NodeBench, node_bench
from railweave.agents.attempt import NodePhase
from railweave.agents.processes import process
from railweave.agents.spec import Spec
from waiting import wait_until

# Detaches the way daemons do: two forks and a session of its own, then sleeps.
DETACH = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        {body}
        open("detached", "w").write(f"{{os.getpid()}}\\n")
        time.sleep(1000)
    os._exit(0)
os.wait()
while not os.path.exists("detached"):
    time.sleep(0.01)
"""
IGNORE_SIGTERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
# Forks and exits without end, so that its pid changes faster than a table of pids can be read.
HOPPER = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    open("hopping", "w").write("yes\\n")
    while True:
        if os.fork():
            os._exit(0)
time.sleep(1000)
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeBench]:
    with node_bench(tmp_path) as bench:
        yield bench


def test_ranks_get_their_environment_their_folder_and_their_own_session(node: NodeBench) -> None:
    code = """
import os
print(os.environ["RANK"], os.environ["WORLD_SIZE"], os.environ["PYTHONUNBUFFERED"], os.getcwd())
print(os.getsid(0) == os.getpid() == os.getpgid(0), os.readlink("/proc/self/fd/0"))
print(sorted(os.listdir("/proc/self/fd"))[:-1])
"""
    launch = {"env": {"WORLD_SIZE": "2"}, "ranks": 2}
    assert node.python(code, **launch).phase in (NodePhase.RUNNING, NodePhase.ENDED)
    status = node.ended()
    assert status.phase is NodePhase.ENDED
    assert [rank.exit_code for rank in status.ranks] == [0, 0]
    for rank in range(2):
        lines = node.runner.read_log("job", 1, rank).text.splitlines()
        assert lines[0] == f"{rank} 2 1 {node.folder}"
        assert lines[1] == "True /dev/null"
        assert lines[2] == "['0', '1', '2']"  # besides the one that lists them


def test_exit_codes_and_signals_are_told_apart_and_failures_show_their_last_lines(
    node: NodeBench,
) -> None:
    code = """
import os, signal, sys
rank = int(os.environ["RANK"])
for line in range(50):
    print("line", line)
sys.stdout.buffer.write(b"bad \\xff byte\\n")
sys.stdout.flush()
if rank == 1:
    sys.exit(3)
if rank == 2:
    os.kill(os.getpid(), signal.SIGSEGV)
"""
    node.python(code, ranks=3)
    ranks = node.ended().ranks
    assert [(r.exit_code, r.signal, r.failed) for r in ranks] == [
        (0, None, False),
        (3, None, True),
        (None, signal.SIGSEGV, True),
    ]
    assert ranks[0].last_lines == ()
    assert len(ranks[1].last_lines) == 20
    assert ranks[1].last_lines[-2:] == ("line 49", "bad \ufffd byte")
    assert all(r.started_s and r.exited_s and r.exited_s >= r.started_s for r in ranks)


def test_a_failed_rank_is_reported_and_the_others_are_left_alone(node: NodeBench) -> None:
    node.launch("sh", "-c", "test $RANK = 1 && exit 7; exec sleep 1000", ranks=3)
    wait_until(
        lambda: any(rank.failed for rank in node.runner.status("job", 1).ranks), 30, "rank 1 failed"
    )
    status = node.runner.status("job", 1)
    assert status.phase is NodePhase.RUNNING
    assert [rank.exit_code for rank in status.ranks] == [None, 7, None]
    assert len(node.alive()) == 2


@pytest.mark.parametrize(
    ("command", "folder", "said"),
    [
        (("no-such-program",), None, "no command 'no-such-program' in PATH"),
        (("./missing.sh",), None, "no command './missing.sh' on node n0"),
        (("./plain.txt",), None, "make it executable"),
        (("./bad-interpreter",), None, "the interpreter in its #! line"),
        (("./not-a-program",), None, "not a program node n0 can run"),
        (("true",), "nowhere", "is not a folder on node n0"),
        (("true", "x" * 5_000_000), None, "cannot be started on node n0"),
    ],
)
def test_a_rank_that_cannot_start_says_what_to_change(
    node: NodeBench, command: tuple[str, ...], folder: str | None, said: str
) -> None:
    (node.folder / "plain.txt").write_text("hello")
    for name, text in (("bad-interpreter", "#!/no/such\n"), ("not-a-program", "\0\1\2")):
        (node.folder / name).write_text(text)
        (node.folder / name).chmod(0o755)
    node.launch(*command, ranks=2, working_dir=str(node.folder / (folder or "")))
    status = node.ended()
    assert status.phase is NodePhase.ENDED
    for rank in status.ranks:
        assert said in rank.error
        assert rank.failed
        assert rank.pid is None


def test_stop_asks_first_and_lets_a_rank_finish(node: NodeBench) -> None:
    code = """
import signal, sys, time
def leave(*_):
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
time.sleep(1000)
"""
    node.python(code)
    wait_until(lambda: "ready" in node.runner.read_log("job", 1, 0).text, 30, "handler is set")
    report = node.runner.stop("job", 1, grace_s=30)
    assert (report.killed, report.survivors) == (1, ())
    assert report.took_s < 10
    assert node.runner.read_log("job", 1, 0).text == "ready\nsaved\n"
    status = node.runner.status("job", 1)
    assert (status.phase, status.reason) == (NodePhase.STOPPED, "stopped on request")
    assert status.ranks[0].exit_code == 0


def test_stop_kills_ranks_that_ignore_sigterm_once_the_grace_is_over(node: NodeBench) -> None:
    node.launch("sh", "-c", "trap '' TERM; echo set > ready; while :; do sleep 0.05; done")
    node.wait_for_file("ready")
    report = node.runner.stop("job", 1, grace_s=0.3)
    assert report.survivors == ()
    assert 0.3 <= report.took_s < 3
    assert node.runner.status("job", 1).ranks[0].signal == signal.SIGKILL
    assert node.alive() == []


def test_stop_reaches_stopped_ranks_and_lets_them_handle_sigterm(node: NodeBench) -> None:
    node.launch("sh", "-c", "trap 'exit 5' TERM; echo set > ready; while :; do sleep 0.02; done")
    node.wait_for_file("ready")
    pid = node.runner.status("job", 1).ranks[0].pid
    assert pid
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: (found := process(pid)) and found.state == "T", 30, "the rank is stopped")
    report = node.runner.stop("job", 1, grace_s=10)
    assert report.took_s < 5
    assert node.runner.status("job", 1).ranks[0].exit_code == 5


@pytest.mark.parametrize(
    "body", ["pass", "os.environ.clear()", "import signal; signal.signal(15, 1)"]
)
def test_stop_finds_grandchildren_that_detached_themselves(node: NodeBench, body: str) -> None:
    node.python(DETACH.format(body=body) + "time.sleep(1000)")
    detached = int(node.wait_for_file("detached"))
    report = node.runner.stop("job", 1, grace_s=0.2)
    assert report.survivors == ()
    assert report.killed == 2
    assert node.gone(detached)


def test_leftovers_of_ranks_that_have_exited_are_ended_too(node: NodeBench) -> None:
    node.python(DETACH.format(body=IGNORE_SIGTERM))
    detached = int(node.wait_for_file("detached"))
    status = node.ended()
    assert status.phase is NodePhase.ENDED
    assert status.ranks[0].exit_code == 0
    assert node.gone(detached)


def test_a_process_that_forks_away_all_the_time_is_caught(node: NodeBench) -> None:
    node.python(HOPPER)
    node.wait_for_file("hopping")
    report = node.runner.stop("job", 1, grace_s=0.1)
    assert report.survivors == ()
    assert node.ended().phase in (NodePhase.ENDED, NodePhase.STOPPED)
    assert node.alive() == []


def test_death_of_the_raylet_ends_everything(node: NodeBench) -> None:
    node.python(DETACH.format(body="pass") + "time.sleep(1000)", ranks=2)
    node.wait_for_file("detached")
    guard = node.guard_pid()
    node.raylet.kill()
    node.raylet.wait()
    status = node.ended()
    assert (status.phase, status.reason) == (NodePhase.STOPPED, "the node's raylet died")
    assert node.alive() == []
    wait_until(lambda: node.gone(guard), 30, "the guard has exited")


def test_nothing_starts_when_the_raylet_is_dead_already(node: NodeBench) -> None:
    node.raylet.kill()
    node.raylet.wait()
    status = node.launch("sh", "-c", "echo started > started")
    assert (status.phase, status.reason) == (NodePhase.STOPPED, "the node's raylet died")
    assert not (node.folder / "started").exists()


def test_ranks_die_with_a_guard_that_is_killed(node: NodeBench) -> None:
    node.launch("sleep", "1000", ranks=3)
    os.kill(node.guard_pid(), signal.SIGKILL)
    wait_until(lambda: not node.alive(), 30, "the ranks are dead, without anyone's help")
    status = node.ended()
    assert status.phase is NodePhase.STOPPED
    assert "its guard died" in status.reason
    assert all(rank.failed and rank.signal == signal.SIGKILL for rank in status.ranks)


def test_what_a_killed_guard_leaves_deeper_down_is_found_by_its_marker(node: NodeBench) -> None:
    node.python(DETACH.format(body=IGNORE_SIGTERM) + "time.sleep(1000)")
    detached = int(node.wait_for_file("detached"))
    os.kill(node.guard_pid(), signal.SIGKILL)
    report = node.runner.stop("job", 1, grace_s=0.2)
    assert report.survivors == ()
    assert node.gone(detached)
    assert node.ended().phase is NodePhase.STOPPED


def test_sigterm_to_the_guard_is_a_stop(node: NodeBench) -> None:
    node.launch("sleep", "1000")
    os.kill(node.guard_pid(), signal.SIGTERM)
    status = node.ended()
    assert (status.phase, status.reason) == (NodePhase.STOPPED, "its guard was sent SIGTERM")
    assert node.alive() == []


def test_a_second_stop_can_shorten_the_grace_of_the_first(node: NodeBench) -> None:
    node.launch("sh", "-c", "trap '' TERM; echo set > ready; while :; do sleep 0.05; done")
    node.wait_for_file("ready")
    took: list[float] = []
    patient = threading.Thread(
        target=lambda: took.append(node.runner.stop("job", 1, grace_s=60).took_s)
    )
    patient.start()
    report = node.runner.stop("job", 1, grace_s=0.1)
    patient.join(10)
    assert report.took_s < 5
    assert took[0] < 10


def test_sixty_four_ranks_start_and_end_together(node: NodeBench) -> None:
    status = node.launch("sh", "-c", "exec sleep 1000", ranks=64)
    assert status.phase is NodePhase.RUNNING
    assert len({rank.pid for rank in status.ranks}) == 64
    report = node.runner.stop("job", 1, grace_s=5)
    assert (report.killed, report.survivors) == (64, ())
    status = node.runner.status("job", 1)
    assert all(rank.signal == signal.SIGTERM for rank in status.ranks)


def test_a_flood_of_output_costs_the_guard_nothing(node: NodeBench) -> None:
    node.python("import sys\nfor _ in range(64): sys.stdout.write('x' * 2**20)\nsys.exit(1)")
    status = node.ended()
    assert [len(line) for line in status.ranks[0].last_lines] == [500]
    assert node.runner.read_log("job", 1, 0, offset=-10).size == 64 * 2**20


def test_the_socket_is_for_its_owner_and_bad_requests_do_no_harm(node: NodeBench) -> None:
    node.launch("sleep", "1000")
    spec = Spec.read(node.state_dir / "jobs" / "job" / "attempt-1")
    assert spec
    assert len(os.fsencode(spec.socket)) <= 107
    assert stat.S_IMODE(os.stat(spec.socket).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(spec.socket)).st_mode) == 0o700
    for request in (b"", b"\n", b"[]\n", b"{}\n", b'{"command": "dance"}\n', b"x" * 200_000):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5)
            client.connect(spec.socket)
            try:
                client.sendall(request)
                client.shutdown(socket.SHUT_WR)
                answer = client.recv(10)
            except (BrokenPipeError, ConnectionResetError):
                answer = b""
            assert answer == b""
    assert node.runner.status("job", 1, after_seq=0, wait_s=1).phase is NodePhase.RUNNING
    assert len(node.alive()) == 1


def test_the_journal_tells_the_whole_story_in_order(node: NodeBench) -> None:
    node.launch("sh", "-c", "exit $RANK", ranks=2)
    node.ended()
    text = (node.state_dir / "jobs" / "job" / "attempt-1" / "journal.jsonl").read_text()
    records = [json.loads(line) for line in text.splitlines()]
    assert [record["seq"] for record in records] == list(range(1, len(records) + 1))
    assert [r["phase"] for r in records if "phase" in r] == ["starting", "running", "ended"]
    assert all(abs(record["time_s"] - time.time()) < 60 for record in records)


def test_the_guard_exits_and_takes_its_socket_with_it(node: NodeBench) -> None:
    node.launch("true")
    guard = node.guard_pid()
    spec = Spec.read(node.state_dir / "jobs" / "job" / "attempt-1")
    assert spec
    assert node.ended().phase is NodePhase.ENDED
    wait_until(lambda: node.gone(guard), 30, "the guard has exited")
    assert not os.path.exists(spec.socket)
    assert node.runner.status("job", 1).phase is NodePhase.ENDED
