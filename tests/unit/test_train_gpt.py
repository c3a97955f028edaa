"""The example job: every split learns the same, and what was killed ends as if it had not been."""

from __future__ import annotations

import json
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from railweave.agents.checkpoint import latest
from waiting import wait_until

pytest.importorskip("torch")

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "train_gpt.py"
DEADLINE_S = 240
SMALL = (
    *("--layers", "4", "--hidden", "32", "--heads", "4"),
    *("--seq", "32", "--batch", "24", "--micro-batches", "3"),
)
SPLIT = ("--tp", "2", "--pp", "2")

# Runs the example, but counts the bytes that each group of ranks is given to reduce or send.
COUNTING = """
import json, os, runpy, sys
import torch.distributed as dist
sent = {}
def count(tensor, ranks):
    if tensor.numel() > 1:
        key = " ".join(map(str, ranks))
        sent[key] = sent.get(key, 0) + tensor.numel() * tensor.element_size()
real_reduce, real_p2p = dist.all_reduce, dist.P2POp
def all_reduce(tensor, *args, group=None, **kwargs):
    count(tensor, dist.get_process_group_ranks(group))
    return real_reduce(tensor, *args, group=group, **kwargs)
def p2p(op, tensor, peer, group):
    if op is dist.isend:
        count(tensor, [dist.get_rank(), peer])
    return real_p2p(op, tensor, peer, group)
dist.all_reduce, dist.P2POp = all_reduce, p2p
runpy.run_path(sys.argv[0], run_name="__main__")
print("sent " + json.dumps(sent), flush=True)
"""

# Runs the example, but its process is killed when half of this rank's shard of a step is written.
DYING = """
import os, runpy, signal, sys
step = os.environ["DIE_IN_SHARD_OF_STEP"]
real = os.write
def write(handle, data):
    path = os.readlink(f"/proc/self/fd/{handle}")
    if f"step-{int(step):012d}." in path and ".shard-" in path and len(data) > 1000:
        real(handle, bytes(data)[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    return real(handle, data)
os.write = write
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def plain_environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith(("RAILWEAVE_", "TORCHELASTIC"))}


class Ranks:
    """The processes of one launch of the example, with torchrun's environment."""

    def __init__(
        self,
        folder: Path,
        world_size: int,
        *options: str,
        attempt: int = 1,
        resume_from: str = "",
        checkpoint_dir: Path | None = None,
        special: dict[int, tuple[str, dict[str, str]]] | None = None,
    ) -> None:
        folder.mkdir(parents=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.outputs = [folder / f"rank-{rank}.log" for rank in range(world_size)]
        self.processes: list[subprocess.Popen[bytes]] = []
        for rank in range(world_size):
            environment = plain_environment() | {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(world_size),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "RAILWEAVE_ATTEMPT": str(attempt),
                "RAILWEAVE_RESUME_FROM": resume_from,
            }
            if checkpoint_dir is not None:
                environment["RAILWEAVE_CHECKPOINT_DIR"] = str(checkpoint_dir)
            command = [str(EXAMPLE), *SMALL, *options]
            if special and rank in special:
                code, extra = special[rank]
                environment |= extra | {"PYTHONPATH": str(EXAMPLE.parent)}
                command = ["-c", f"import sys; del sys.argv[0]\n{code}", *command]
            with self.outputs[rank].open("wb") as output:
                self.processes.append(
                    subprocess.Popen(
                        [sys.executable, *command],
                        env=environment,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                    )
                )

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()

    def text(self, rank: int = 0) -> str:
        return self.outputs[rank].read_text()

    def wait(self) -> str:
        """Rank 0's output once every rank has ended well."""
        wait_until(
            lambda: all(p.poll() is not None for p in self.processes) or self.failed(),
            DEADLINE_S,
            "the ranks ended",
        )
        failed = self.failed()
        assert not failed, "\n".join(self.text(rank) for rank in failed)
        return self.text()

    def wait_for_line(self, line: str) -> None:
        wait_until(
            lambda: line in self.text() or self.failed(), DEADLINE_S, f"rank 0 prints {line}"
        )
        assert line in self.text(), "\n".join(self.text(rank) for rank in self.failed())

    def failed(self) -> list[int]:
        return [r for r, p in enumerate(self.processes) if p.poll() not in (None, 0)]


def losses(text: str) -> dict[int, str]:
    """The loss of every step, exactly, as hexadecimal."""
    return {int(s): h for s, h in re.findall(r"^step=(\d+) .*hex=(\S+)", text, re.MULTILINE)}


def weights(text: str) -> str:
    (found,) = re.findall(r"weights_sha256=([0-9a-f]{64})", text)
    return str(found)


def run(folder: Path, world_size: int, *options: str, **kwargs: Any) -> str:
    with Ranks(folder, world_size, *options, **kwargs) as ranks:
        return ranks.wait()


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    folder = tmp_path_factory.mktemp("one") / "run"
    return losses(run(folder, 1, "--steps", "12", "--dropout", "0"))


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run(tmp_path_factory.mktemp("unbroken") / "run", 4, *SPLIT, "--steps", "12")


def assert_close(found: dict[int, str], expected: dict[int, str]) -> None:
    assert found.keys() == expected.keys()
    for step, loss in found.items():
        assert float.fromhex(loss) == pytest.approx(float.fromhex(expected[step]), rel=1e-5)


def test_the_loss_falls(one_process: dict[int, str], unbroken: str) -> None:
    for found in (one_process, losses(unbroken)):
        values = [float.fromhex(loss) for loss in found.values()]
        assert len(values) == 12
        assert values[0] == pytest.approx(4.08, abs=0.05)  # ln 59: nothing is known yet
        assert values[-1] < values[0] - 0.3


def test_a_pipeline_of_four_stages_learns_what_one_process_learns(
    tmp_path: Path, one_process: dict[int, str]
) -> None:
    found = run(tmp_path / "run", 4, "--pp", "4", "--steps", "12", "--dropout", "0")
    assert_close(losses(found), one_process)


@pytest.mark.parametrize(
    ("slices", "blocking"),
    [(1, False), pytest.param(2, True, marks=pytest.mark.soak)],
)
def test_what_some_replicas_have_saved_fewer_and_more_go_on_with_bit_for_bit(
    tmp_path: Path, one_process: dict[int, str], slices: int, blocking: bool
) -> None:
    options = ["--tp", str(slices), "--dp", "auto", "--dropout", "0", "--save-every", "4"]
    # Starts of processes are what takes time here, so only the longer form grows again.
    sizes = [(2, 4), (1, 8), (2, 12)] if blocking else [(2, 4), (1, 8)]
    options += ["--blocking-saves"] if blocking else []
    directory = tmp_path / "checkpoints"
    found: dict[int, str] = {}
    saved, resume_from = "", ""
    for attempt, (replicas, steps) in enumerate(sizes, start=1):
        text = run(
            tmp_path / f"run-{attempt}",
            replicas * slices,
            *options,
            *("--steps", str(steps)),
            attempt=attempt,
            resume_from=resume_from,
            checkpoint_dir=directory,
        )
        if resume_from:
            assert f"goes on with dp={replicas} weights_sha256={saved}" in text
        found |= losses(text)
        saved = re.findall(r"^done .*weights_sha256=(\w{64})", text, re.MULTILINE)[0]
        newest = latest(directory, world_size=1000)
        assert newest.step == steps and newest.path is not None
        resume_from = newest.path
    assert_close(found, {step: one_process[step] for step in range(1, steps + 1)})


def test_all_three_dimensions_learn_what_one_process_learns_and_send_what_is_described(
    tmp_path: Path, one_process: dict[int, str]
) -> None:
    split = ("--tp", "2", "--dp", "2", "--pp", "2")
    counting = {rank: (COUNTING, {}) for rank in range(8)}
    options = (*split, "--steps", "12", "--dropout", "0")
    with Ranks(tmp_path / "run", 8, *options, special=counting) as ranks:
        assert_close(losses(ranks.wait()), one_process)
        sent: dict[tuple[int, ...], set[float]] = defaultdict(set)
        for rank in range(8):
            line = next(x for x in ranks.text(rank).splitlines() if x.startswith("sent "))
            for group, total in json.loads(line.removeprefix("sent ")).items():
                sent[tuple(map(int, group.split()))].add(total / 12)
    described = subprocess.run(
        [sys.executable, str(EXAMPLE), "--describe", *SMALL, *split],
        capture_output=True,
        text=True,
        check=True,
    )
    groups = json.loads(described.stdout)["groups"]
    assert {tuple(g["ranks"]): {g["bytes"]} for g in groups} == sent


def test_training_that_was_killed_and_resumed_ends_bit_for_bit_as_if_unbroken(
    tmp_path: Path, unbroken: str
) -> None:
    saves = tmp_path / "checkpoints"
    options = (*SPLIT, "--steps", "12", "--save-every", "4")
    with Ranks(tmp_path / "1", 4, *options, checkpoint_dir=saves) as ranks:
        ranks.wait_for_line("saved step=4")
        ranks.processes[3].send_signal(signal.SIGKILL)
        wait_until(lambda: 3 in ranks.failed(), DEADLINE_S, "rank 3 is dead")
    newest = latest(saves, world_size=4)
    assert newest.path is not None and newest.step in (4, 8)
    text = run(
        tmp_path / "2", 4, *options, checkpoint_dir=saves, attempt=2, resume_from=newest.path
    )
    expected = losses(unbroken)
    assert f"resumed step={newest.step} from={newest.path}" in text
    assert losses(text) == {s: expected[s] for s in range(newest.step + 1, 13)}
    assert weights(text) == weights(unbroken)
    assert latest(saves).step == 12


def test_the_checkpoint_a_rank_was_killed_in_is_never_used(tmp_path: Path, unbroken: str) -> None:
    saves = tmp_path / "checkpoints"
    options = (*SPLIT, "--steps", "12", "--save-every", "4", "--commit-timeout-s", "600")
    # The rank itself writes then, so that it can be killed in the middle of it.
    options = (*options, "--blocking-saves")
    dying = {2: (DYING, {"DIE_IN_SHARD_OF_STEP": "8"})}
    with Ranks(tmp_path / "1", 4, *options, checkpoint_dir=saves, special=dying) as ranks:
        wait_until(ranks.failed, DEADLINE_S, "rank 2 was killed")
        assert ranks.processes[2].poll() == -signal.SIGKILL, ranks.text(2)
        # Rank 0 now waits for a shard that never comes, until the attempt is ended.
        folder = saves / "step-000000000008.attempt-0001"
        wait_until(
            lambda: len(list(folder.glob("shard-*.json"))) == 3, DEADLINE_S, "3 ranks have saved"
        )
    newest = latest(saves, world_size=4)
    assert newest.step == 4 and newest.path is not None
    ((path, reason),) = newest.passed_over
    assert path == str(folder)
    assert reason == "no manifest: 3 of 4 shards are whole, none from rank 2"
    assert [p.name for p in folder.iterdir() if p.name.startswith(".shard-000002.torch.")]
    text = run(
        tmp_path / "2", 4, *options, checkpoint_dir=saves, attempt=2, resume_from=newest.path
    )
    assert losses(text) == {s: h for s, h in losses(unbroken).items() if s > 4}
    assert weights(text) == weights(unbroken)


def test_plain_torchrun_runs_it_and_a_second_run_goes_on_where_the_first_ended(
    tmp_path: Path,
) -> None:
    def torchrun(steps: int) -> str:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
                *("--nproc-per-node", "2", str(EXAMPLE), *SMALL, "--dp", "2"),
                *("--steps", str(steps), "--checkpoint-dir", str(tmp_path / "checkpoints")),
            ],
            capture_output=True,
            text=True,
            env=plain_environment(),
            timeout=DEADLINE_S,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert list(losses(torchrun(3))) == [1, 2, 3]
    again = torchrun(5)
    assert "resumed step=3" in again and list(losses(again)) == [4, 5]
    assert "attempt-0002" in again


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("--tp 3", "--heads 4 does not divide by --tp = 3"),
        ("--batch 10 --dp 2", "--batch 10 does not divide by --dp x --micro-batches = 4"),
        ("--dp 2 --batch 4", "is 2 ranks, but WORLD_SIZE is 1"),
        ("--steps 0", "invalid positive value: '0'"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_with_the_reason(
    options: str,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *options.split()])
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err
