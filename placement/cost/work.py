"""What a pipeline stage does for one micro-batch: seconds of the device, and what it must send."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from ..accelerators import Accelerator
from ..models import AttentionCore, Block, Model, Stack
from .compute import DeviceModel, PartTime, Passes
from .constants import Constants
from .memory import BlockMemory, LayerMemory, StageMemory, embedding_bytes, logit_bytes
from .operations import BlockTimer, embedding_passes, head_passes, joining_passes
from .slices import ELEMENT_BYTES, Slice
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
    gradients in it. wait_s: for the host. sums: over tensor-parallel ranks in a forward pass, with
    the bytes of each. gathers: for context parallelism, layers with the bytes of keys and values
    over the whole sequence; turns: with the bytes of queries, keys, values and results of a rank,
    which change places when it is done by all-to-all; swaps: with what goes into a recurrence, and
    comes out, which change places in any case. exchanges: mixtures, with what a rank sends to
    experts. parameters: of a rank. memory: that does not depend on the schedule or on sharding.
    """

    forward_s: float
    backward_s: float
    weights_s: float
    repeated_s: float
    wait_s: float
    sums: tuple[tuple[int, float], ...]
    gathers: tuple[tuple[int, float], ...]
    turns: tuple[tuple[int, float], ...]
    swaps: tuple[tuple[int, float], ...]
    exchanges: tuple[tuple[int, Dispatch], ...]
    parameters: Parameters
    memory: StageMemory

    def then(self, other: StageWork) -> StageWork:
        """This and another part of a stage."""
        ours, theirs = self.memory, other.memory
        return StageWork(
            self.forward_s + other.forward_s,
            self.backward_s + other.backward_s,
            self.weights_s + other.weights_s,
            self.repeated_s + other.repeated_s,
            self.wait_s + other.wait_s,
            _joined(self.sums, other.sums),
            _joined(self.gathers, other.gathers),
            _joined(self.turns, other.turns),
            _joined(self.swaps, other.swaps),
            _joined(self.exchanges, other.exchanges),
            Parameters(
                self.parameters.dense + other.parameters.dense,
                self.parameters.experts + other.parameters.experts,
            ),
            StageMemory(
                ours.kept + theirs.kept,
                max(ours.working, theirs.working),
                ours.logits + theirs.logits,
                max(ours.largest, theirs.largest),
            ),
        )


_NO_MEMORY = StageMemory(0.0, 0.0, 0.0, 0)
_NO_WORK = StageWork(0.0, 0.0, 0.0, 0.0, 0.0, (), (), (), (), (), Parameters(0, 0), _NO_MEMORY)


class _Layer(NamedTuple):
    """All that a stage needs of one of its layers; fields as in `StageWork`."""

    time: PartTime
    sums: tuple[float, ...]
    gathers: tuple[float, ...]
    turns: tuple[float, ...]
    swaps: tuple[float, ...]
    exchanges: tuple[Dispatch, ...]
    parameters: Parameters
    memory: LayerMemory


class _BlockShare(NamedTuple):
    """What a rank has of a layer, whatever its tokens: elements a token of what it sends, apart
    for tokens of its own and of the encoder."""

    timer: BlockTimer
    memory: BlockMemory
    parameters: Parameters
    summed: tuple[int, ...]
    gathered: tuple[tuple[int, int], ...]
    turned: tuple[tuple[int, int], ...]
    swapped: tuple[int, ...]
    chosen: tuple[int, int, int] | None


class StageWorker:
    """Works out stages on one accelerator with one program; what was seen before is kept."""

    def __init__(
        self, accelerator: Accelerator, precision: str, software: Software, constants: Constants
    ) -> None:
        self._device = DeviceModel(accelerator, precision, constants)
        self._software = software
        self._shares: dict[Any, _BlockShare] = {}
        self._layers: dict[Any, _Layer] = {}
        self._runs: dict[Any, StageWork] = {}
        self._ends: dict[Any, StageWork] = {}

    def work(self, model: Model, stage: Stage, part: Slice) -> StageWork:
        """One micro-batch of a model on a stage.

        The first stage embeds and runs an encoder, the last has the head and the layers that
        predict further tokens, with a head each.
        """
        key = (id(model), stage.layers, part)
        found = self._runs.get(key)
        if found is None:
            layers = [(n, self._layer(model, model.stack, i, part)) for n, i in stage.layers]
            found = self._runs[key] = _work_of(layers, model.stack.shared)
        if not stage.first and not stage.last:
            return found
        beside = list(self._end_layers(model, stage, part))
        if beside:
            found = found.then(_work_of(beside, model.stack.shared))
        # Outside its layers a model does not know how experts are divided, or what is repeated.
        known = part._replace(ep=1, expert_tp=1, recompute="none", fp8=False)
        return found.then(self._ends_of(model, stage, known))

    def optimizer_s(self, parameters: Parameters, zero: int, shards: tuple[int, int]) -> float:
        """Seconds of the optimizer: all gradients are read (for their norm), each rank steps its
        own share of the parameters.

        shards: ranks that share out the state of what is not an expert, and of experts.
        """
        dense, experts = parameters
        stepped: float = dense + experts
        read = 2.0 * ELEMENT_BYTES * stepped
        if zero:
            stepped = dense / shards[0] + experts / shards[1]
        if zero >= 2:
            read = 2.0 * ELEMENT_BYTES * stepped
        return self._device.streams_s(1, read + stepped * self._software.optimizer_bytes)

    def _ends_of(self, model: Model, stage: Stage, part: Slice) -> StageWork:
        key = (id(model), stage.first, stage.last, part)
        found = self._ends.get(key)
        if found is None:
            found = self._ends[key] = self._new_ends(model, stage, part)
        return found

    def _new_ends(self, model: Model, stage: Stage, part: Slice) -> StageWork:
        """What a stage does and has outside of layers."""
        device, software, ahead = self._device, self._software, model.prediction
        passes: list[tuple[int, Passes]] = []
        kept = logits = 0.0
        if stage.first:
            passes.append((1, embedding_passes(model, part, device, software)))
            kept = embedding_bytes(model, part, software)
        if stage.last:
            if ahead is not None:
                passes.append((ahead.tokens, joining_passes(ahead, part, device)))
            heads = 1 + (0 if ahead is None else ahead.tokens)
            passes.append((heads, head_passes(model, part, device, software)))
            logits = logit_bytes(model, part, software)
        trained = part.tower_inputs > 0
        outside = end_parameters(model, stage, part.tp, part.vocabulary_tp, trained)
        found = _NO_WORK._replace(
            parameters=Parameters(outside, 0), memory=StageMemory(kept, 0.0, logits, 0)
        )
        for count, some in passes:
            found = found.then(_timed(count, device.part_time(some, software)))
        return found

    def _end_layers(self, model: Model, stage: Stage, part: Slice) -> Iterator[tuple[int, _Layer]]:
        """Layers at the ends: of an encoder and of towers, and those that predict more tokens."""
        if stage.first and (model.encoder is not None or part.tower_inputs):
            towers = [(tower, part.samples * part.tower_inputs) for tower in model.towers]
            if model.encoder is not None:
                towers.append((model.encoder, part.samples))
            for tower, samples in towers:
                sequence = tower.sequence or part.sequence
                if samples:
                    inside = part._replace(sequence=sequence, samples=samples)
                    yield from self._stack(model, tower.stack, inside)
        if stage.last and model.prediction is not None:
            yield from self._stack(model, model.prediction.stack, part)

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
            share = self._share(stack, index, part, model.dropout)
            found = self._layers[key] = self._new_layer(share, part)
        return found

    def _share(self, stack: Stack, index: int, part: Slice, dropout: bool) -> _BlockShare:
        key = (id(stack), index, part.tp, part.ep, part.expert_tp)
        found = self._shares.get(key)
        if found is None:
            found = self._shares[key] = self._new_share(stack.blocks[index], part, dropout)
        return found

    def _new_share(self, block: Block, part: Slice, dropout: bool) -> _BlockShare:
        software, mixture = self._software, block.mixture
        cores = [core for core in block.cores(part.tp) if isinstance(core, AttentionCore)]
        chosen = None
        if mixture is not None and part.exchanges_tokens:
            chosen = (mixture.experts, mixture.experts_per_token, mixture.expert.hidden)
        return _BlockShare(
            timer=BlockTimer(block, part, self._device, software, dropout),
            memory=BlockMemory(block, part, software, dropout),
            parameters=Parameters(
                block.dense_parameters(part.tp),
                block.expert_parameters(part.expert_tp, part.ep),
            ),
            summed=(block.hidden,) * block.tensor_sums(part.exchanges_tokens),
            gathered=tuple(_apart(0, core.key_value_width, core.cross) for core in cores),
            turned=tuple(
                _apart(core.query_width + core.output_width, core.key_value_width, core.cross)
                for core in cores
            ),
            swapped=block.recurrent_widths(part.tp),
            chosen=chosen,
        )

    def _new_layer(self, share: _BlockShare, part: Slice) -> _Layer:
        tokens, source = ELEMENT_BYTES * part.tokens, ELEMENT_BYTES * part.source_tokens
        exchanges: tuple[Dispatch, ...] = ()
        if share.chosen is not None:
            experts, chosen, width = share.chosen
            exchanges = (Dispatch(tokens / part.tp * chosen * width, experts, chosen),)
        return _Layer(
            time=self._device.part_time(share.timer.passes(part), self._software),
            sums=tuple([tokens * width for width in share.summed]),
            gathers=tuple([part.cp * (tokens * a + source * b) for a, b in share.gathered]),
            turns=tuple([tokens * a + source * b for a, b in share.turned]),
            swaps=tuple([tokens * width for width in share.swapped]),
            exchanges=exchanges,
            parameters=share.parameters,
            memory=share.memory.bytes(part),
        )


def _work_of(layers: Sequence[tuple[int, _Layer]], shared: bool) -> StageWork:
    """So many of each layer. shared: those that are alike have one set of parameters."""
    forward = backward = weights = repeated = wait = kept = working = 0.0
    dense = experts = largest = 0
    for count, layer in layers:
        there, inputs, own, again = layer.time
        forward += count * there.device_s
        backward += count * (inputs.device_s + own.device_s)
        weights += count * own.device_s
        repeated += count * again.device_s
        wait += count * (there.wait_s + inputs.wait_s + own.wait_s + again.wait_s)
        held = 1 if shared else count
        dense += held * layer.parameters.dense
        experts += held * layer.parameters.experts
        kept += count * layer.memory.kept
        working = max(working, layer.memory.working)
        largest = max(largest, layer.parameters.dense + layer.parameters.experts)
    return StageWork(
        forward,
        backward,
        weights,
        repeated,
        wait,
        _counted([(count, layer.sums) for count, layer in layers]),
        _counted([(count, layer.gathers) for count, layer in layers]),
        _counted([(count, layer.turns) for count, layer in layers]),
        _counted([(count, layer.swaps) for count, layer in layers]),
        _counted([(count, layer.exchanges) for count, layer in layers]),
        Parameters(dense, experts),
        StageMemory(kept, working, 0.0, largest),
    )


def _timed(count: int, time: PartTime) -> StageWork:
    """So many of what takes time alone."""
    forward, inputs, weights, repeated = time
    return _NO_WORK._replace(
        forward_s=count * forward.device_s,
        backward_s=count * (inputs.device_s + weights.device_s),
        weights_s=count * weights.device_s,
        repeated_s=count * repeated.device_s,
        wait_s=count * sum(one.wait_s for one in time),
    )


def _apart(own: int, keys: int, cross: bool) -> tuple[int, int]:
    """Widths for a layer's own tokens and for the encoder's, which cross-attention reads."""
    return (own, keys) if cross else (own + keys, 0)


def _counted(rows: Sequence[tuple[int, tuple[T, ...]]]) -> tuple[tuple[int, T], ...]:
    """Different things with how many layers have each."""
    if len(rows) == 1:
        count, things = rows[0]
        if len(things) < 2:
            return tuple([(count, thing) for thing in things])
    counts: dict[T, int] = {}
    for count, things in rows:
        for thing in things:
            counts[thing] = counts.get(thing, 0) + count
    return tuple((count, thing) for thing, count in counts.items())


def _joined(
    ours: tuple[tuple[int, T], ...], theirs: tuple[tuple[int, T], ...]
) -> tuple[tuple[int, T], ...]:
    if not ours or not theirs:
        return ours or theirs
    return _counted([(count, (thing,)) for count, thing in (*ours, *theirs)])
