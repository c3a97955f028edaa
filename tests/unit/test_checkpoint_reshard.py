"""Another number of ranks reads what was saved: bit for bit, plain, DTensor and FSDP, over gloo."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from railweave.agents.checkpoint import (  # noqa: E402
    Checkpointer,
    CheckpointError,
    CheckpointTimeout,
    latest,
)
from railweave.agents.checkpoint_manifest import LAYOUT_NAME, Kind  # noqa: E402
from railweave.agents.checkpoint_reshard import load_sharded, save_sharded  # noqa: E402

DEADLINE_S = 200
# Every rank has the same parameters by name, cut for however many ranks there are.
RANK = """
import hashlib, os, sys
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from railweave.agents.checkpoint import Checkpointer, latest
from railweave.agents.checkpoint_background import BackgroundSaves
from railweave.agents.checkpoint_reshard import load_sharded, save_sharded
torch.set_num_threads(1)
directory, attempt = sys.argv[1], int(os.environ["RAILWEAVE_ATTEMPT"])
dist.init_process_group("gloo", init_method=f"file://{directory}.meet-{attempt}",
                        rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
rank, world = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (world,))
checkpoints = Checkpointer(directory)

def built(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(10, 7), torch.nn.Linear(7, 3, bias=False))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    torch.manual_seed(seed)
    model(torch.randn(4, 10)).sum().backward()
    optimizer.step()
    full = torch.arange(60, dtype=torch.float64).view(12, 5) + seed
    return model, optimizer, {
        "rows": distribute_tensor(full, mesh, [Shard(0)]),
        "columns": distribute_tensor(full, mesh, [Shard(1)]),
        "whole": distribute_tensor(full, mesh, [Replicate()]),
        "plain": full.bfloat16(),
        "empty": torch.empty(0, 4),
        "scalar": torch.tensor(seed),
        "step": seed,
        "note": "seed %d" % seed,
    }

def told(model, optimizer, more):
    digest = hashlib.sha256()
    def add(part, name):
        if isinstance(part, dict):
            for key in sorted(part, key=str):
                add(part[key], f"{name}.{key}")
        elif isinstance(part, (list, tuple)):
            for index, each in enumerate(part):
                add(each, f"{name}.{index}")
        elif isinstance(part, torch.Tensor):
            full = part.full_tensor() if isinstance(part, DTensor) else part
            data = full.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
            digest.update(name.encode() + data)
        else:
            digest.update(f"{name}={part!r}".encode())
    weights, moments = get_state_dict(model, optimizer)
    add(weights, "model"); add(moments, "optimizer"); add(more, "more")
    return digest.hexdigest()

def state(model, optimizer, more):
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "more": more}

model, optimizer, more = built(3 if attempt == 1 else 99)
if attempt == 1:
    with BackgroundSaves(checkpoints, commit_timeout_s=60) as saves:
        save_sharded(saves, 3, state(model, optimizer, more))
    dist.barrier()
else:
    found = latest(directory, world_size=world)
    before = told(model, optimizer, more)
    loaded = state(model, optimizer, more)
    load_sharded(found, loaded)
    set_state_dict(model, optimizer, model_state_dict=loaded["model"],
                   optim_state_dict=loaded["optimizer"])
    more = loaded["more"]
    assert told(model, optimizer, more) != before
checksum = told(model, optimizer, more)
if rank == 0:
    print("checksum", checksum, flush=True)
dist.barrier()
dist.destroy_process_group()
sys.stdout.flush()
# Torch's own threads abort a process now and then that has ended otherwise.
os._exit(0)
"""


def run(directory: Path, attempt: int, world: int) -> str:
    """What rank 0 prints, once all ranks have ended well."""
    ranks = []
    for rank in range(world):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("RAILWEAVE_")}
        environment |= {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank)}
        environment |= {"RAILWEAVE_ATTEMPT": str(attempt), "OMP_NUM_THREADS": "1"}
        ranks.append(
            subprocess.Popen(
                [sys.executable, "-c", RANK, str(directory)],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    try:
        outputs = [rank.communicate(timeout=DEADLINE_S)[0] for rank in ranks]
    finally:
        for each in ranks:
            each.kill()
            each.wait()
    assert [rank.returncode for rank in ranks] == [0] * world, "\n".join(outputs)
    (line,) = [line for line in outputs[0].splitlines() if line.startswith("checksum ")]
    return line


def test_two_ranks_save_and_three_go_on_with_the_very_same_state(tmp_path: Path) -> None:
    directory = tmp_path / "checkpoints"
    saved = run(directory, 1, 2)
    found = latest(directory)
    assert found.manifest is not None and found.manifest.world_size == 2
    assert {str(shard.kind) for shard in found.manifest.shards} == {"slices"}
    assert latest(directory, world_size=7).path == found.path
    assert run(directory, 2, 3) == saved


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, str]:
    checkpoints = Checkpointer(tmp_path, 0, 1, 1)
    state = {"w": torch.arange(6.0).view(2, 3), "b": torch.ones(4), "step": 5}
    save_sharded(checkpoints, 5, state)
    return tmp_path, checkpoints.commit(5)


def loaded(path: str, **wanted: Any) -> dict[str, Any]:
    state = {"w": torch.zeros(2, 3), "b": torch.zeros(4), "step": 0} | wanted
    load_sharded(path, state)
    return state


pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def test_one_process_needs_no_process_group(saved: tuple[Path, str]) -> None:
    state = loaded(saved[1])
    assert torch.equal(state["w"], torch.arange(6.0).view(2, 3)) and state["step"] == 5


def test_a_damaged_slice_or_layout_is_never_loaded(saved: tuple[Path, str]) -> None:
    shard = Path(saved[1]) / "shard-000000.slices"
    layout = Path(saved[1]) / "layout.json"
    whole, described = shard.read_bytes(), layout.read_bytes()
    shard.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(CheckpointError, match=r"(?s)cannot resume from .* is damaged"):
        loaded(saved[1])
    shard.write_bytes(whole)
    layout.write_bytes(described.replace(b'"offset": 0', b'"offset": 1', 1))
    with pytest.raises(CheckpointError, match="does not match its own checksum"):
        loaded(saved[1])
    layout.write_bytes(described)
    assert loaded(saved[1])["step"] == 5


def test_a_state_of_another_shape_or_with_other_parts_is_refused(saved: tuple[Path, str]) -> None:
    with pytest.raises(CheckpointError, match="cannot resume from"):
        loaded(saved[1], w=torch.zeros(3, 3))
    with pytest.raises(CheckpointError, match=r"(?s)cannot resume from .*other"):
        loaded(saved[1], other=torch.zeros(1))


def test_the_two_ways_of_saving_are_told_apart(saved: tuple[Path, str], tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="saved in slices; use load_sharded"):
        Checkpointer(saved[0], 0, 1, 2).load(saved[1])
    plain = Checkpointer(tmp_path / "plain", 0, 1, 1)
    plain.save(1, {"w": torch.ones(1)})
    with pytest.raises(CheckpointError, match="not saved by save_sharded"):
        load_sharded(plain.commit(1), {"w": torch.zeros(1)})


def test_slices_are_no_checkpoint_until_their_layout_is_written(tmp_path: Path) -> None:
    ranks = [Checkpointer(tmp_path, rank, 2, 1) for rank in range(2)]
    for rank in ranks:
        rank.write_shard(4, Kind.SLICES, lambda writer: writer.write(b"slice"))
    with pytest.raises(CheckpointTimeout, match="the layout of its slices is not written"):
        ranks[0].commit(4, timeout_s=0.0)
    ranks[1].write_record(4, LAYOUT_NAME, b"{}")
    assert ranks[0].begin_commit(4).look()
    # A step that is saved once more waits for the layout of that time.
    ranks[0].remove_record(4, LAYOUT_NAME)
    assert not ranks[0].begin_commit(4).look()


def test_what_could_not_be_read_back_is_refused_when_it_is_saved(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot save step 1 in slices"):
        save_sharded(Checkpointer(tmp_path, 0, 1, 1), 1, {"p": Path("x")})
    assert not latest(tmp_path)
