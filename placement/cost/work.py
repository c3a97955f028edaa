"""What a pipeline stage does for one micro-batch: seconds of the device, and what it must send."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

from ..accelerators import Accelerator
from ..models import AttentionCore, Block, Model, Stack
from ..workload import Workload
from .compute import DeviceModel, PartTime
from .constants import Constants
from .memory import LayerMemory, StageMemory, embedding_bytes, layer_bytes, logit_bytes
from .operations import (
    ELEMENT_BYTES,
    Passes,
    Slice,
    block_passes,
    embedding_passes,
    head_passes,
    joining_passes,
)
from .software import Software
from .stages import Parameters, Stage, end_parameters

T = TypeVar("T")


class Dispatch(NamedTuple):
    """What a rank sends to the experts of a layer: bytes in all, each of its tokens to `chosen` of
    `experts`.
    """

    size: float
    experts: int
    chosen: int

    def part_to_islands(self, islands: int) -> float:
        """The part of the bytes for other islands that is sent there, where a token goes to each
        island once and is copied there.

        With M islands a token has an expert on one with P = 1 - C(E - E/M, k) / C(E, k).
        """
        away = self.experts - self.experts // islands
        missed = 0.0
        if away >= self.chosen:
            missed = math.comb(away, self.chosen) / math.comb(self.experts, self.chosen)
        return (1 - missed) * islands / self.chosen


class StageWork(NamedTuple):
    """One micro-batch on one stage.

    forward_s, backward_s, weights_s, repeated_s: seconds of the device; backward has the weight
    gradients in it. wait_s: for the host. reductions: sums over tensor-parallel ranks in a forward
    pass. gathers: for context parallelism, layers with the bytes of keys and values over the whole
    sequence; turns: with the bytes of queries, keys, values and results of a rank, which change
    places when it is done by all-to-all. exchanges: mixtures, with what a rank sends to experts.
    parameters: of a rank. memory: that does not depend on the schedule or on sharding.
    """

    forward_s: float
    backward_s: float
    weights_s: float
    repeated_s: float
    wait_s: float
    reductions: int
    gathers: tuple[tuple[int, float], ...]
    turns: tuple[tuple[int, float], ...]
    exchanges: tuple[tuple[int, Dispatch], ...]
    parameters: Parameters
    memory: StageMemory


class _Layer(NamedTuple):
    """All that a stage needs of one of its layers; fields as in `StageWork`."""

    time: PartTime
    reductions: int
    gathers: tuple[float, ...]
    turns: tuple[float, ...]
    exchanges: tuple[Dispatch, ...]
    parameters: Parameters
    memory: LayerMemory


class _Ends(NamedTuple):
    """What a stage does besides its layers: further layers, passes, parameters outside layers, and
    bytes of activations and logits.
    """

    layers: list[tuple[int, _Layer]]
    times: list[tuple[int, PartTime]]
    parameters: int
    kept: float
    logits: float


class StageWorker:
    """Works out stages on one accelerator with one program; layers seen before are kept."""

    def __init__(
        self, accelerator: Accelerator, precision: str, software: Software, constants: Constants
    ) -> None:
        self._device = DeviceModel(accelerator, precision, constants)
        self._software = software
        self._layers: dict[Any, _Layer] = {}
        self._ends: dict[Any, _Ends] = {}

    def work(self, model: Model, stage: Stage, part: Slice) -> StageWork:
        """One micro-batch of a model on a stage.

        The first stage embeds and runs an encoder, the last has the head and the layers that
        predict further tokens, with a head each.
        """
        ends = self._ends_of(model, stage, part)
        layers = [
            (count, self._layer(model, model.stack, index, part)) for count, index in stage.layers
        ]
        layers += ends.layers
        forward = backward = weights = repeated = wait = kept = 0.0
        reductions = dense = experts = 0
        for count, time in [*((count, layer.time) for count, layer in layers), *ends.times]:
            forward += count * time.forward.device_s
            backward += count * (time.inputs.device_s + time.weights.device_s)
            weights += count * time.weights.device_s
            repeated += count * time.repeated.device_s
            wait += count * sum(one.wait_s for one in time)
        for count, layer in layers:
            # Layers that share one set of parameters hold it once.
            held = 1 if model.stack.shared else count
            dense += held * layer.parameters.dense
            experts += held * layer.parameters.experts
            kept += count * layer.memory.kept
            reductions += count * layer.reductions
        return StageWork(
            forward_s=forward,
            backward_s=backward,
            weights_s=weights,
            repeated_s=repeated,
            wait_s=wait,
            reductions=reductions,
            gathers=_counted((count, layer.gathers) for count, layer in layers),
            turns=_counted((count, layer.turns) for count, layer in layers),
            exchanges=_counted((count, layer.exchanges) for count, layer in layers),
            parameters=Parameters(dense + ends.parameters, experts),
            memory=StageMemory(
                kept=kept + ends.kept,
                working=max((layer.memory.working for _, layer in layers), default=0.0),
                logits=ends.logits,
                largest=max((sum(layer.parameters) for _, layer in layers), default=0),
            ),
        )

    def optimizer_s(self, workload: Workload, parameters: Parameters) -> float:
        """Seconds of the optimizer: all gradients are read (for their norm), each rank steps its
        own share of the parameters.
        """
        split = workload.parallelism
        dense, experts = parameters
        read = 2.0 * ELEMENT_BYTES * (dense + experts)
        stepped = float(dense + experts)
        if split.zero:
            stepped = dense / split.shard_size + experts / split.expert_shard_size
        if split.zero >= 2:
            read = 2.0 * ELEMENT_BYTES * stepped
        return self._device.stream_s(read + stepped * self._software.optimizer_bytes)

    def _ends_of(self, model: Model, stage: Stage, part: Slice) -> _Ends:
        key = (id(model), stage.first, stage.last, part)
        found = self._ends.get(key)
        if found is None:
            found = self._ends[key] = self._new_ends(model, stage, part)
        return found

    def _new_ends(self, model: Model, stage: Stage, part: Slice) -> _Ends:
        layers: list[tuple[int, _Layer]] = []
        times: list[tuple[int, PartTime]] = []
        software = self._software
        if stage.first:
            times.append((1, self._time(embedding_passes(model, part, software))))
            towers = [(tower, part.samples * part.tower_inputs) for tower in model.towers]
            if model.encoder is not None:
                towers.append((model.encoder, part.samples))
            for tower, samples in towers:
                sequence = tower.sequence or part.sequence
                if samples:
                    inside = part._replace(sequence=sequence, samples=samples)
                    layers += self._stack(model, tower.stack, inside)
        if stage.last:
            heads = 1
            if model.prediction is not None:
                ahead = model.prediction
                heads += ahead.tokens
                layers += self._stack(model, ahead.stack, part)
                times.append((ahead.tokens, self._time(joining_passes(ahead, part))))
            times.append((heads, self._time(head_passes(model, part, software))))
        trained = part.tower_inputs > 0
        return _Ends(
            layers=layers,
            times=times,
            parameters=end_parameters(model, stage, part.tp, part.vocabulary_tp, trained),
            kept=embedding_bytes(model, part, software) if stage.first else 0.0,
            logits=logit_bytes(model, part, software) if stage.last else 0.0,
        )

    def _stack(self, model: Model, stack: Stack, part: Slice) -> list[tuple[int, _Layer]]:
        place = {id(block): index for index, block in enumerate(stack.blocks)}
        return [
            (count, self._layer(model, stack, place[id(block)], part))
            for count, block in stack.kinds
        ]

    def _layer(self, model: Model, stack: Stack, index: int, part: Slice) -> _Layer:
        key = (id(stack), index, part)
        found = self._layers.get(key)
        if found is None:
            found = self._layers[key] = self._new_layer(stack.blocks[index], part, model.dropout)
        return found

    def _new_layer(self, block: Block, part: Slice, dropout: bool) -> _Layer:
        tokens = ELEMENT_BYTES * part.tokens
        cores = [core for core in block.cores(part.tp) if isinstance(core, AttentionCore)]
        turned = [c.query_width + c.key_value_width + c.output_width for c in cores]
        return _Layer(
            time=self._time(block_passes(block, part, self._software, dropout)),
            reductions=_reductions(block, part),
            gathers=tuple(tokens * part.cp * core.key_value_width for core in cores),
            turns=tuple(tokens * width for width in turned),
            exchanges=_exchanges(block, part),
            parameters=Parameters(
                block.dense_parameters(part.tp),
                block.expert_parameters(part.expert_tp, part.ep),
            ),
            memory=layer_bytes(block, part, self._software, dropout),
        )

    def _time(self, passes: Passes) -> PartTime:
        return self._device.part_time(passes, self._software)


def _reductions(block: Block, part: Slice) -> int:
    """Sums over tensor-parallel ranks; where tokens travel, a mixture has only its shared one."""
    mixture = block.mixture
    if mixture is None or not part.exchanges_tokens or block.parallel:
        return block.reductions
    return block.reductions - (1 if mixture.shared is None else 0)


def _exchanges(block: Block, part: Slice) -> tuple[Dispatch, ...]:
    mixture = block.mixture
    if mixture is None or not part.exchanges_tokens:
        return ()
    chosen = mixture.experts_per_token
    size = ELEMENT_BYTES * part.tokens / part.tp * chosen * mixture.expert.hidden
    return (Dispatch(size, mixture.experts, chosen),)


def _counted(rows: Iterable[tuple[int, tuple[T, ...]]]) -> tuple[tuple[int, T], ...]:
    """Different things with how many layers have each."""
    counts: dict[T, int] = {}
    for count, things in rows:
        for thing in things:
            counts[thing] = counts.get(thing, 0) + count
    return tuple((count, thing) for thing, count in counts.items())
