"""A small GPT split over tensor, pipeline and data parallelism, in plain PyTorch.

Tensor parallelism splits every matrix product inside a layer, pipeline parallelism splits the
layers into stages, and data parallelism runs copies of the whole on different sequences.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """Sizes of the model; `vocabulary` is the number of different characters."""

    layers: int
    hidden: int
    heads: int
    sequence: int
    vocabulary: int
    dropout: float
    seed: int


class Grid:
    """Where this rank stands: rank = (stage * dp + replica) * tp + slice, so slices are nearest."""

    def __init__(self, tp: int, dp: int, pp: int, rank: int, device: torch.device) -> None:
        self.tp, self.dp, self.pp, self.rank, self.device = tp, dp, pp, rank, device
        self.slice = rank % tp
        self.replica = rank // tp % dp
        self.stage = rank // (tp * dp)
        mesh = init_device_mesh(device.type, (pp, dp, tp), mesh_dim_names=("pp", "dp", "tp"))
        self.tp_group = mesh.get_group("tp")
        self.dp_group = mesh.get_group("dp")
        self.pp_group = mesh.get_group("pp")
        # NCCL connects a group at its first call, which all of its ranks must take part in; the
        # first call of a pipeline would be between two of them.
        for group in (self.tp_group, self.dp_group, self.pp_group):
            dist.all_reduce(torch.zeros(1, device=device), group=group)

    @property
    def first(self) -> bool:
        """Whether this rank is in the stage that reads the tokens."""
        return self.stage == 0

    @property
    def last(self) -> bool:
        """Whether this rank is in the stage that computes the loss."""
        return self.stage == self.pp - 1

    @property
    def next(self) -> int:
        """The rank with this rank's part of the next stage."""
        return self.rank + self.tp * self.dp

    @property
    def previous(self) -> int:
        """The rank with this rank's part of the stage before."""
        return self.rank - self.tp * self.dp


# --- Tensor parallelism ---------------------------------------------------------------------------
# A pair of matrix products needs one sum over the slices forward, after the second product, and one
# backward, before the first: these two functions, each the other's mirror image.


class EnterSlices(torch.autograd.Function):
    """Forward: the same input for every slice. Backward: the sum of the slices' gradients."""

    @staticmethod
    def forward(context: Any, x: Tensor, grid: Grid) -> Tensor:
        context.grid = grid
        return x

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return sum_over_slices(gradient, context.grid), None


class LeaveSlices(torch.autograd.Function):
    """Forward: the sum of the slices' results. Backward: the same gradient for every slice."""

    @staticmethod
    def forward(context: Any, x: Tensor, grid: Grid) -> Tensor:
        return sum_over_slices(x, grid)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


def sum_over_slices(x: Tensor, grid: Grid) -> Tensor:
    """The all-reduce that tensor parallelism pays with."""
    if grid.tp > 1:
        x = x.contiguous().clone()
        dist.all_reduce(x, group=grid.tp_group)
    return x


class Layer(nn.Module):
    """One transformer layer; this rank holds `heads / tp` heads and `4 * hidden / tp` neurons."""

    def __init__(self, shape: Shape, grid: Grid, index: int) -> None:
        super().__init__()
        self.shape, self.grid = shape, grid
        h, tp = shape.hidden, grid.tp
        self.heads, self.width = shape.heads // tp, h // tp

        def rows(name: str, size: int, parts: int = 1) -> nn.Parameter:
            """This rank's rows of a matrix that maps `hidden` to `parts * size` values."""
            whole = normal(shape, f"layer {index} {name}", (parts, size, h), std=0.02)
            mine = whole.chunk(tp, dim=1)[grid.slice]
            return nn.Parameter(mine.reshape(-1, h).clone())

        def columns(name: str, size: int) -> nn.Parameter:
            """This rank's columns of a matrix that maps `size` values to `hidden`."""
            std = 0.02 / math.sqrt(2 * shape.layers)
            whole = normal(shape, f"layer {index} {name}", (h, size), std)
            return nn.Parameter(whole.chunk(tp, dim=1)[grid.slice].clone())

        self.norm_1, self.norm_2 = nn.LayerNorm(h), nn.LayerNorm(h)
        self.attention_in = rows("attention in", h, parts=3)
        self.attention_out = columns("attention out", h)
        self.attention_bias = nn.Parameter(torch.zeros(h))
        self.mlp_in = rows("mlp in", 4 * h)
        self.mlp_in_bias = nn.Parameter(torch.zeros(4 * h // tp))
        self.mlp_out = columns("mlp out", 4 * h)
        self.mlp_bias = nn.Parameter(torch.zeros(h))
        mask = torch.ones(shape.sequence, shape.sequence, dtype=torch.bool).tril()
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """[sequences, characters, hidden] -> the same."""
        x = x + self.dropped(self.attention(self.norm_1(x)) + self.attention_bias)
        return x + self.dropped(self.mlp(self.norm_2(x)) + self.mlp_bias)

    def attention(self, x: Tensor) -> Tensor:
        """Causal attention over this rank's heads, summed over all slices."""
        sequences, characters, _ = x.shape
        x = functional.linear(EnterSlices.apply(x, self.grid), self.attention_in)
        query, key, value = (
            part.view(sequences, characters, self.heads, -1).transpose(1, 2)
            for part in x.split(self.width, dim=2)
        )
        scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[-1])
        scores = scores.masked_fill(~self.mask[:characters, :characters], -math.inf)
        mixed = (scores.softmax(dim=-1) @ value).transpose(1, 2).flatten(2)
        return LeaveSlices.apply(functional.linear(mixed, self.attention_out), self.grid)

    def mlp(self, x: Tensor) -> Tensor:
        """The feed-forward part over this rank's neurons, summed over all slices."""
        x = functional.linear(EnterSlices.apply(x, self.grid), self.mlp_in, self.mlp_in_bias)
        return LeaveSlices.apply(functional.linear(functional.gelu(x), self.mlp_out), self.grid)

    def dropped(self, x: Tensor) -> Tensor:
        """Dropout; the slices of a stage draw the same mask, as their generators run in step."""
        return functional.dropout(x, self.shape.dropout, self.training)


class Stage(nn.Module):
    """This rank's part of the model: its slice of the layers of one pipeline stage."""

    def __init__(self, shape: Shape, grid: Grid) -> None:
        super().__init__()
        self.grid = grid
        h = shape.hidden
        each = shape.layers // grid.pp
        if grid.first:
            characters = normal(shape, "characters", (shape.vocabulary, h), std=0.02)
            positions = normal(shape, "positions", (shape.sequence, h), std=0.02)
            self.characters, self.positions = nn.Parameter(characters), nn.Parameter(positions)
        first_layer = grid.stage * each
        self.layers = nn.ModuleList(Layer(shape, grid, first_layer + i) for i in range(each))
        if grid.last:
            self.norm = nn.LayerNorm(h)
            self.head = nn.Parameter(normal(shape, "head", (shape.vocabulary, h), std=0.02))

    def forward(self, x: Tensor, targets: Tensor | None) -> Tensor:
        """Characters or the stage before's output -> this stage's output, or the mean loss."""
        if self.grid.first:
            x = functional.embedding(x, self.characters) + self.positions[: x.shape[1]]
        for layer in self.layers:
            x = layer(x)
        if not self.grid.last or targets is None:
            return x
        scores = functional.linear(self.norm(x), self.head)
        return functional.cross_entropy(scores.flatten(0, 1), targets.flatten())


def normal(shape: Shape, name: str, size: tuple[int, ...], std: float) -> Tensor:
    """A weight's first values: a function of its name alone, so every split starts the same."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{shape.seed} {name}".encode()))
    return torch.randn(size, generator=generator) * std


# --- Pipeline parallelism -------------------------------------------------------------------------


class Pipeline:
    """One step over micro-batches by the 1F1B schedule.

    A stage first runs forward as many micro-batches as there are stages after it; then it
    alternates one forward and one backward, and at the end drains. So it never holds more
    activations than stages, and sends and receives that would wait for each other go together.
    """

    def __init__(self, stage: Stage, grid: Grid, activation: tuple[int, int, int]) -> None:
        self.stage, self.grid, self.activation = stage, grid, activation

    def step(self, inputs: list[Tensor], targets: list[Tensor]) -> Tensor:
        """Gradients of the mean loss over the micro-batches; the last stage returns that loss."""
        count = len(inputs)
        loss = torch.zeros((), device=self.grid.device)
        held: list[tuple[Tensor, Tensor]] = []

        def forward(index: int, received: Tensor | None) -> Tensor:
            nonlocal loss
            x = inputs[index] if received is None else received.requires_grad_()
            output = self.stage(x, targets[index])
            if self.grid.last:
                output = output / count
                loss = loss + output.detach()
            held.append((x, output))
            return output

        def backward(gradient: Tensor | None) -> Tensor | None:
            x, output = held.pop(0)
            output.backward(gradient)
            return x.grad

        ahead = min(self.grid.pp - 1 - self.grid.stage, count)
        for index in range(ahead):
            output = forward(index, self.exchange(receive_previous=True)[0])
            self.exchange(to_next=output)
        received = self.exchange(receive_previous=count > ahead)[0]
        for index in range(ahead, count):
            output = forward(index, received)
            gradient = self.exchange(to_next=output, receive_next=True)[1]
            more = index + 1 < count
            received = self.exchange(to_previous=backward(gradient), receive_previous=more)[0]
        for _ in range(ahead):
            gradient = self.exchange(receive_next=True)[1]
            self.exchange(to_previous=backward(gradient))
        return loss

    def exchange(
        self,
        *,
        to_next: Tensor | None = None,
        to_previous: Tensor | None = None,
        receive_previous: bool = False,
        receive_next: bool = False,
    ) -> tuple[Tensor | None, Tensor | None]:
        """Send and receive at once; nothing at the two ends of the pipeline.

        Returns what came from the stage before and from the next one.
        """
        grid, group = self.grid, self.grid.pp_group
        operations: list[dist.P2POp] = []
        came: list[Tensor | None] = [None, None]
        if not grid.first:
            if to_previous is not None:
                sent = to_previous.contiguous()
                operations.append(dist.P2POp(dist.isend, sent, grid.previous, group))
            if receive_previous:
                came[0] = torch.empty(self.activation, device=grid.device)
                operations.append(dist.P2POp(dist.irecv, came[0], grid.previous, group))
        if not grid.last:
            if to_next is not None:
                sent = to_next.detach().contiguous()
                operations.append(dist.P2POp(dist.isend, sent, grid.next, group))
            if receive_next:
                came[1] = torch.empty(self.activation, device=grid.device)
                operations.append(dist.P2POp(dist.irecv, came[1], grid.next, group))
        if operations:
            for request in dist.batch_isend_irecv(operations):
                request.wait()
        return came[0], came[1]


# --- Data parallelism and the optimizer -----------------------------------------------------------


def average_gradients(parameters: Iterable[nn.Parameter], grid: Grid) -> None:
    """The all-reduce that data parallelism pays with: one, over all gradients in one buffer."""
    if grid.dp == 1:
        return
    gradients = [p.grad for p in parameters if p.grad is not None]
    buffer = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(buffer, group=grid.dp_group)
    buffer /= grid.dp
    at = 0
    for gradient in gradients:
        gradient.copy_(buffer[at : at + gradient.numel()].view_as(gradient))
        at += gradient.numel()


class AdamW:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019).

    Written out because torch.optim imports the compiler, a second of start for every process.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], rate: float) -> None:
        self.parameters, self.rate = list(parameters), rate
        self.steps = 0
        self.means = [torch.zeros_like(p) for p in self.parameters]
        self.squares = [torch.zeros_like(p) for p in self.parameters]

    @torch.no_grad()
    def step(self) -> None:
        """Change the parameters by their gradients, and forget those."""
        self.steps += 1
        rate = self.rate * min(1.0, self.steps / 10)
        for p, mean, square in zip(self.parameters, self.means, self.squares, strict=True):
            if p.grad is None:
                continue
            mean.lerp_(p.grad, 1 - 0.9)
            square.lerp_(p.grad * p.grad, 1 - 0.95)
            root = (square / (1 - 0.95**self.steps)).sqrt_().add_(1e-8)
            p.mul_(1 - rate * 0.01).sub_(mean / root * (rate / (1 - 0.9**self.steps)))
            p.grad = None

    def state(self) -> dict[str, Any]:
        """All that the next step depends on, for a checkpoint."""
        return {"steps": self.steps, "means": self.means, "squares": self.squares}

    def load(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken."""
        self.steps = state["steps"]
        for mine, saved in ((self.means, state["means"]), (self.squares, state["squares"])):
            for tensor, value in zip(mine, saved, strict=True):
                tensor.copy_(value)
