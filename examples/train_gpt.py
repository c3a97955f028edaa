"""Train a small character-level GPT over several processes, and survive losing some of them.

    torchrun --nproc-per-node 8 examples/train_gpt.py --tp 2 --dp 2 --pp 2

Needs only torchrun's environment. Under Railweave it also takes the checkpoint directory, the
attempt and the checkpoint to resume from out of the environment. Data order, dropout and sums are
functions of the step, so a run that was broken off and resumed ends with the very same weights.
With `--dp auto` it goes on with any number of replicas, from the very weights that were saved.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from gpt_parallel import AdamW, Grid, Pipeline, Shape, Stage, average_gradients
from railweave.agents import checkpoint, report
from railweave.agents.checkpoint_background import BackgroundSaves

TEXT = Path(__file__).parent / "data" / "sonnets.txt"


def arguments() -> argparse.Namespace:
    """The command line, refused with a reason where the sizes do not divide."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    whole = {"type": positive, "metavar": "N"}
    parser.add_argument("--tp", default=1, help="slices of every layer", **whole)
    replicas = "replicas of the whole model; auto: as many as the ranks of this start make"
    parser.add_argument("--dp", default=1, type=number_or_auto, metavar="N", help=replicas)
    parser.add_argument("--pp", default=1, help="stages of the pipeline", **whole)
    parser.add_argument("--steps", default=100, help="stop after this step", **whole)
    parser.add_argument("--layers", default=4, **whole)
    parser.add_argument("--hidden", default=64, help="width of the model", **whole)
    parser.add_argument("--heads", default=4, help="attention heads", **whole)
    parser.add_argument("--seq", default=64, help="characters of a sequence", **whole)
    parser.add_argument("--batch", default=16, help="sequences a step, over all replicas", **whole)
    parser.add_argument("--micro-batches", default=2, help="parts of a replica's batch", **whole)
    parser.add_argument("--rate", default=3e-3, type=float, help="learning rate")
    parser.add_argument("--dropout", default=0.1, type=float)
    parser.add_argument("--seed", default=1, type=int)
    parser.add_argument("--text", default=TEXT, type=Path, help="the text to learn")
    often = "steps between checkpoints; auto: so often as loses the least time"
    parser.add_argument("--save-every", default=10, type=number_or_auto, metavar="N", help=often)
    parser.add_argument("--blocking-saves", action="store_true", help="stand still while saving")
    parser.add_argument("--keep", default=3, help="checkpoints that are kept", **whole)
    parser.add_argument("--checkpoint-dir", default=os.environ.get(checkpoint.DIRECTORY_VARIABLE))
    parser.add_argument("--commit-timeout-s", default=120.0, type=float)
    parser.add_argument("--step-delay-s", default=0.0, type=float, help="sleep in every step")
    describe = "print the communication graph of this job as railweave.pcg/1 and end"
    parser.add_argument("--describe", action="store_true", help=describe)
    options = parser.parse_args()
    there = int(os.environ.get("WORLD_SIZE", "1"))
    options.resizable = options.dp is None
    if options.resizable and options.describe:
        parser.error("--describe needs a number of replicas: give --dp N")
    options.dp = options.dp or max(1, there // (options.tp * options.pp))
    for total, parts in (
        ("layers", ("pp",)),
        ("heads", ("tp",)),
        ("hidden", ("heads",)),
        ("batch", ("dp", "micro_batches")),
    ):
        divisor = 1
        for part in parts:
            divisor *= getattr(options, part)
        if getattr(options, total) % divisor:
            names = " x ".join(f"--{part.replace('_', '-')}" for part in parts)
            found = getattr(options, total)
            parser.error(f"--{total} {found} does not divide by {names} = {divisor}")
    ranks = options.tp * options.dp * options.pp
    if ranks != there and not options.describe:
        parser.error(f"--tp x --dp x --pp is {ranks} ranks, but WORLD_SIZE is {there}")
    return options


def positive(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    if (value := int(text)) < 1:
        raise ValueError
    return value


def number_or_auto(text: str) -> int | None:
    """A whole number of at least 1, or None for `auto`, for argparse."""
    return None if text == "auto" else positive(text)


class Text:
    """The characters of a text as numbers, and the sequences of each step."""

    def __init__(self, options: argparse.Namespace) -> None:
        text = options.text.read_text(encoding="utf-8")
        self.alphabet = sorted(set(text))
        number = {character: index for index, character in enumerate(self.alphabet)}
        self.numbers = torch.tensor([number[character] for character in text])
        self.options = options

    def micro_batches(self, step: int, grid: Grid) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """A replica's inputs and targets: a function of the step and the replica alone."""
        o = self.options
        generator = torch.Generator().manual_seed(o.seed * 1_000_003 + step)
        starts = torch.randint(len(self.numbers) - o.seq, (o.batch,), generator=generator)
        mine = starts.chunk(grid.dp)[grid.replica]
        window = self.numbers[mine[:, None] + torch.arange(o.seq + 1)].to(grid.device)
        return (
            list(window[:, :-1].chunk(o.micro_batches)),
            list(window[:, 1:].chunk(o.micro_batches)),
        )


def graph(options: argparse.Namespace) -> dict[str, object]:
    """What the ranks of this job send each other in a step, as a PCG for `railweave place`."""
    from railweave.placement import PCG, Model, Parallelism, Workload, build_pcg

    o = options
    model = Model.transformer(
        name="train_gpt",
        hidden=o.hidden,
        layers=o.layers,
        heads=o.heads,
        vocab=len(Text(o).alphabet),
        sequence=o.seq,
        qkv_bias=False,
        tied_embeddings=False,
    )
    workload = Workload(
        model=model,
        # Every slice holds the whole embedding and head.
        parallelism=Parallelism(
            tp=o.tp, dp=o.dp, pp=o.pp, zero=0, sequence_parallel=False, vocabulary_parallel=False
        ),
        global_batch=o.batch,
        micro_batch=o.batch // (o.dp * o.micro_batches),
        precision="bf16",
        rank_order="tp-dp-pp",
    )
    pcg = build_pcg(workload)
    # Everything here is sent in 4 bytes, twice those of bf16.
    groups = tuple(g.model_copy(update={"bytes": 2 * g.bytes}) for g in pcg.groups)
    return PCG(world_size=pcg.world_size, groups=groups).to_data()


def join() -> tuple[int, torch.device]:
    """Meet the other ranks; returns this rank's number and device."""
    os.environ.setdefault("RANK", "0")
    os.environ.setdefault("WORLD_SIZE", "1")
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    torch.set_num_threads(1)
    if torch.cuda.is_available():
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        device = torch.device(
            "cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
        )
        torch.cuda.set_device(device)
        # Not on CPUs: what runs there is deterministic with one thread, and this call imports
        # the compiler, a second of start for every process.
        torch.use_deterministic_algorithms(True)
        dist.init_process_group("nccl")
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")
    return dist.get_rank(), device


class Saves:
    """This rank's checkpoints: where to resume, and what to write."""

    def __init__(self, options: argparse.Namespace, grid: Grid) -> None:
        self.options, self.grid = options, grid
        numbered = checkpoint.ATTEMPT_VARIABLE in os.environ
        agreed: list[object] = [os.environ.get(checkpoint.ATTEMPT_VARIABLE, "1")]
        agreed.append(os.environ.get("RAILWEAVE_RESUME_FROM", ""))
        if options.checkpoint_dir and not numbered:
            # Without Railweave nobody numbers the launches or names a checkpoint: rank 0 does.
            if grid.rank == 0:
                newest = checkpoint.latest(options.checkpoint_dir, world_size=dist.get_world_size())
                for path, reason in newest.passed_over:
                    say(f"passed over {path}: {reason}")
                agreed = [checkpoint.next_attempt(options.checkpoint_dir), newest.path or ""]
            dist.broadcast_object_list(agreed, src=0, device=grid.device)
        self.resume_from = str(agreed[1])
        self.checkpointer = (
            checkpoint.Checkpointer(
                options.checkpoint_dir, grid.rank, dist.get_world_size(), int(str(agreed[0]))
            )
            if options.checkpoint_dir
            else None
        )
        self.background: BackgroundSaves | None = None
        if self.checkpointer is not None and not options.blocking_saves:
            self.background = BackgroundSaves(
                self.checkpointer,
                keep=checkpoint.Keep(options.keep),
                commit_timeout_s=options.commit_timeout_s,
                agree=self.agreed,
            )

    def agreed(self, number: int) -> int:
        """Rank 0's number, on every rank."""
        told = torch.tensor([number], device=self.grid.device)
        dist.broadcast(told, src=0)
        return int(told)

    def due(self, step: int) -> bool:
        """Whether this step is to be saved."""
        if self.options.save_every is not None:
            return bool(step % self.options.save_every == 0)
        return self.background is not None and self.background.should_save(step)

    def resume(self, stage: Stage, optimizer: AdamW) -> int:
        """Load what there is to resume from; returns the last step that is in the weights."""
        if not self.resume_from:
            return 0
        if self.checkpointer is None:
            raise SystemExit("RAILWEAVE_RESUME_FROM is set, but no checkpoint directory is")
        if self.options.resizable:
            state = self.resharded(stage, optimizer)
        else:
            state = self.checkpointer.load(self.resume_from)
            stage.load_state_dict(state["model"])
            optimizer.load(state["optimizer"])
            set_generator(state["generator"], self.grid.device)
        if self.grid.rank == 0:
            say(f"resumed step={state['step']} from={self.resume_from}")
        return int(state["step"])

    def sliced(self, step: int, stage: Stage, optimizer: AdamW) -> dict[str, Any]:
        """This rank's state as any number of replicas reads it: replicas have the same in it."""
        part = f"stage {self.grid.stage} slice {self.grid.slice}"
        return {"step": step, part: {"model": stage.state_dict(), **optimizer.state()}}

    def resharded(self, stage: Stage, optimizer: AdamW) -> dict[str, Any]:
        """Load a state that was saved by as many replicas as there were then, in place."""
        from railweave.agents.checkpoint_reshard import load_sharded

        state = self.sliced(0, stage, optimizer)
        load_sharded(self.resume_from, state)
        (part,) = (found for found in state.values() if isinstance(found, dict))
        optimizer.load(part)
        return state

    def save(self, step: int, stage: Stage, optimizer: AdamW) -> None:
        """Save this rank's state; rank 0 makes it a checkpoint once all have."""
        if self.checkpointer is None:
            return
        began_s = time.monotonic()
        if self.options.resizable:
            from railweave.agents.checkpoint_reshard import save_sharded

            state = self.sliced(step, stage, optimizer)
            save_sharded(self.background or self.checkpointer, step, state)
        else:
            state = {
                "step": step,
                "model": stage.state_dict(),
                "optimizer": optimizer.state(),
                "generator": generator_state(self.grid.device),
            }
            (self.background or self.checkpointer).save(step, state)
        if self.background is None and self.grid.rank == 0:
            path = self.checkpointer.commit(step, self.options.commit_timeout_s)
            say(f"saved step={step} path={path}")
            checkpoint.prune(
                self.options.checkpoint_dir, self.options.keep, check=checkpoint.Check.SIZES
            )
        if self.grid.rank == 0:
            say(f"stalled step={step} stall_s={time.monotonic() - began_s:.6f}")

    def tell(self) -> None:
        """Say what has become of saves in the background."""
        for outcome in self.background.outcomes() if self.background is not None else ():
            if outcome.path or outcome.failed:
                say(str(outcome))

    def finish(self) -> None:
        """Wait for the last ones."""
        if self.background is not None:
            for outcome in self.background.finish():
                if outcome.path or outcome.failed:
                    say(str(outcome))
            self.background.close()


def seed_dropout(options: argparse.Namespace, grid: Grid, step: int) -> None:
    """Draw the dropout masks of a step as a function of it, whatever the number of replicas.

    The slices of a stage must draw the same; stages and replicas need not.
    """
    stream = (options.seed * 1_000_003 + step) * 1_000_003
    torch.manual_seed(stream + grid.stage * 65_537 + grid.replica)


def generator_state(device: torch.device) -> torch.Tensor:
    """State of the random numbers that dropout draws."""
    return torch.cuda.get_rng_state() if device.type == "cuda" else torch.get_rng_state()


def set_generator(state: torch.Tensor, device: torch.device) -> None:
    """Go on drawing from there."""
    (torch.cuda.set_rng_state if device.type == "cuda" else torch.set_rng_state)(state)


def reported_loss(loss: torch.Tensor, grid: Grid) -> float | None:
    """The loss over all replicas, brought from the last stage to rank 0; None elsewhere."""
    if grid.last:
        dist.all_reduce(loss, group=grid.dp_group)
        loss /= grid.dp
    source = grid.tp * grid.dp * (grid.pp - 1)
    if grid.pp > 1 and grid.rank == source:
        dist.send(loss, 0)
    elif grid.pp > 1 and grid.rank == 0:
        dist.recv(loss, source)
    return float(loss) if grid.rank == 0 else None


def weights_sha256(stage: Stage, grid: Grid) -> str:
    """One checksum of the weights of all ranks. Replicas that differ are an error."""
    digest = hashlib.sha256()
    for name, tensor in sorted(stage.state_dict().items()):
        digest.update(name.encode() + tensor.cpu().numpy().tobytes())
    mine = torch.tensor(list(digest.digest()), dtype=torch.uint8, device=grid.device)
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(every, mine)
    replicas = torch.stack(every).view(grid.pp, grid.dp, grid.tp, -1)
    if not (replicas == replicas[:, :1]).all():
        raise SystemExit("the data-parallel replicas hold different weights")
    return hashlib.sha256(replicas[:, 0].cpu().numpy().tobytes()).hexdigest()


def say(line: str) -> None:
    """One line of the log, with the wall-clock time."""
    print(f"{line} time_s={time.time():.3f}", flush=True)


def main() -> None:
    """Train from the newest checkpoint, or from nothing, to the last step."""
    options = arguments()
    if options.describe:
        print(json.dumps(graph(options)))
        return
    rank, device = join()
    grid = Grid(options.tp, options.dp, options.pp, rank, device)
    text = Text(options)
    o = options
    shape = Shape(o.layers, o.hidden, o.heads, o.seq, len(text.alphabet), o.dropout, o.seed)
    stage = Stage(shape, grid).to(device)
    optimizer = AdamW(stage.parameters(), options.rate)
    micro_batch = options.batch // grid.dp // options.micro_batches
    pipeline = Pipeline(stage, grid, (micro_batch, options.seq, options.hidden))
    # The slices of a stage must draw the same dropout masks; stages and replicas need not.
    torch.manual_seed(options.seed * 1_000_003 + grid.stage * grid.dp + grid.replica)
    saves = Saves(options, grid)
    done = saves.resume(stage, optimizer)
    if done and options.resizable:
        checksum = weights_sha256(stage, grid)
        if rank == 0:
            say(f"goes on with dp={grid.dp} weights_sha256={checksum}")
    for step in range(done + 1, options.steps + 1):
        began_s = time.monotonic()
        time.sleep(options.step_delay_s)
        if options.resizable:
            seed_dropout(options, grid, step)
        loss = pipeline.step(*text.micro_batches(step, grid))
        average_gradients(stage.parameters(), grid)
        optimizer.step()
        shown = reported_loss(loss, grid)
        report(step, loss=shown)
        if shown is not None:
            took_s = time.monotonic() - began_s
            say(f"step={step} loss={shown:.7f} hex={shown.hex()} took_s={took_s:.3f}")
        if saves.due(step) or step == options.steps:
            saves.save(step, stage, optimizer)
        saves.tell()
    checksum = weights_sha256(stage, grid)
    if rank == 0:
        say(f"done step={options.steps} weights_sha256={checksum}")
    saves.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
