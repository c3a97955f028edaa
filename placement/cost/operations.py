"""What a rank computes for one micro-batch: matrix products, attention, and passes over memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from ..models import AttentionCore, Block, MatMul, Model, Prediction
from ..models.work import Core
from .compute import DeviceModel, Pass, Passes, Product
from .slices import ELEMENT_BYTES, Slice
from .software import Software

BACKWARD_ATTENTION = 2.5
"""FLOPs of fused attention backward over forward: scores are computed again (Dao 2022)."""
_MOST_KEPT = 4096
"""Sizes whose times are kept for a block, before all are forgotten."""


class Streams(NamedTuple):
    """Element-wise kernels: how many, and the bytes that they move together."""

    number: int
    size: float

    def times(self, factor: float) -> Streams:
        """As many kernels with so many times the bytes."""
        return Streams(self.number, factor * self.size)


class BlockTimer:
    """Times the passes of a layer on one device with one program, for any number of tokens.

    The layer is one rank's of `tp` x `ep`, its experts divided over `expert_tp`. Products and
    attention are kept by their sizes, which slices that differ in other things have in common.
    """

    def __init__(
        self,
        block: Block,
        part: Slice,
        device: DeviceModel,
        software: Software,
        dropout: bool,
    ) -> None:
        self._device, self._software = device, software
        self._dropout = dropout and software.dropout
        self._matmuls = block.matmuls(part.tp, part.ep, part.expert_tp)
        self._cores = block.cores(part.tp)
        parts = sum(p is not None for p in (block.mixer, block.cross, block.feed_forward))
        moved = 2 * block.norms + (3.5 if self._dropout else 3.0) * parts
        inside = tuple(_inside_widths(block, self._matmuls, self._cores))
        self._streams = block.norms + parts + len(inside)
        self._whole_bytes = software.element_traffic * ELEMENT_BYTES * block.hidden * moved
        self._inside_bytes = software.element_traffic * ELEMENT_BYTES * sum(inside)
        self._kernels = 2.0 * len(self._matmuls) + software.element_kernels * self._streams
        self._products: dict[tuple[float, float], tuple[float, float, float, float]] = {}
        self._mixings: dict[tuple[int, int, int, int | None], tuple[Pass, Pass]] = {}

    def passes(self, part: Slice) -> Passes:
        """The passes of a micro-batch.

        Memory traffic of the element-wise kernels: a norm reads and writes its input, a residual
        reads two tensors and writes one (and a mask, with dropout), an activation reads what the
        product before it wrote and writes its result; backward all of it is twice. Attention that
        is not fused writes its scores, and reads and writes them for softmax and again for dropout
        (the kernels of Megatron-LM, Shoeybi 2019).
        """
        device, kernels = self._device, self._kernels
        forward_s, inputs_s, weights_s, again_s = self._products_s(part)
        size = self._whole_bytes * part.whole_tokens + self._inside_bytes * part.tokens
        moved_s = device.streams_s(self._streams, size)
        plain = Pass(forward_s + moved_s, kernels)
        backward = Pass(inputs_s + device.streams_s(self._streams, 2 * size), 1.5 * kernels)
        mixing, mixing_back = self._mixing(part)
        forward = plain.then(mixing)
        repeated = Pass()
        if part.recompute == "full":
            repeated = forward
        elif part.recompute == "selective":
            share = self._software.selective_products
            repeated = Pass(again_s + moved_s, share * kernels) if share else mixing
        if part.fp8:
            forward = forward.then(self._casts(part, [m.k for m in self._matmuls]))
            backward = backward.then(self._casts(part, [m.n for m in self._matmuls]))
        weights = Pass(weights_s, 0.5 * kernels)
        return Passes(forward, backward.then(mixing_back), weights, repeated)

    def _products_s(self, part: Slice) -> tuple[float, float, float, float]:
        """Seconds of the products forward, for inputs, for weights, and of those done again."""
        key = (part.tokens, part.source_tokens)
        found = self._products.get(key)
        if found is None:
            if len(self._products) >= _MOST_KEPT:
                self._products.clear()
            product_s = self._device.product_s
            again = self._software.selective_products
            forward = inputs = weights = repeated = 0.0
            for one in self._matmuls:
                m, n, k, times = part.rows_of(one), one.n, one.k, one.count
                forward += product_s(m, n, k, times)
                inputs += product_s(m, k, n, times)
                weights += product_s(k, n, m, times)
                repeated += product_s(m, n, k, again * times) if again else 0.0
            found = self._products[key] = forward, inputs, weights, repeated
        return found

    def _mixing(self, part: Slice) -> tuple[Pass, Pass]:
        """Of attention and recurrences, forward and backward."""
        key = (part.sequence, part.samples, part.cp, part.source)
        found = self._mixings.get(key)
        if found is None:
            if len(self._mixings) >= _MOST_KEPT:
                self._mixings.clear()
            forward = backward = Pass()
            for core in self._cores:
                there, back = self._core_passes(core, part)
                forward, backward = forward.then(there), backward.then(back)
            found = self._mixings[key] = forward, backward
        return found

    def _core_passes(self, core: Core, part: Slice) -> tuple[Pass, Pass]:
        device, software = self._device, self._software
        flops = core.flops_per_token(part.sequence, part.source) * part.tokens
        if not isinstance(core, AttentionCore):
            seconds = device.scan_s(flops)
            return Pass(seconds, 8.0), Pass(BACKWARD_ATTENTION * seconds, 16.0)
        if software.fused_attention:
            if core.causal and not software.context_balanced:
                flops *= (2 * part.cp - 1) / part.cp
            seconds = device.fused_s(flops, software.attention_share)
            return Pass(seconds, 2.0), Pass(BACKWARD_ATTENTION * seconds, 4.0)
        keys = part.keys_of(core)
        rows, heads = part.sequence / part.cp, part.samples * core.heads
        products = (Product(rows, keys, core.qk_dim, heads), Product(rows, core.v_dim, keys, heads))
        swapped = [
            Product(*sizes)
            for m, n, k, times in products
            for sizes in ((m, k, n, times), (k, n, m, times))
        ]
        scores = software.element_traffic * ELEMENT_BYTES * heads * rows * keys
        streams = Streams(2, 4.5 * scores) if self._dropout else Streams(1, 2 * scores)
        forward = device.scores_s(products) + device.streams_s(*streams)
        backward = device.scores_s(swapped) + device.streams_s(*streams.times(1.5))
        return Pass(forward, 8.0), Pass(backward, 16.0)

    def _casts(self, part: Slice, widths: list[int]) -> Pass:
        """Reading each tensor in 16 bits, writing it in 8, and its transpose."""
        size = sum(
            4.0 * width * matmul.count * part.rows_of(matmul)
            for matmul, width in zip(self._matmuls, widths, strict=True)
        )
        return Pass(self._device.streams_s(len(widths), size), 0.0)


def head_passes(model: Model, part: Slice, device: DeviceModel, software: Software) -> Passes:
    """The operations after the last layer: final norm, logits and loss."""
    if model.head is None:
        return Passes(Pass(), Pass(), Pass(), Pass())
    matmuls = model.head.matmuls(part.vocabulary_tp)
    forward, inputs, weights = _product_seconds(device, matmuls, part.tokens)
    logits = software.logit_traffic_bytes * part.tokens * matmuls[-1].n
    norm = 2.0 * ELEMENT_BYTES * model.hidden * part.whole_tokens
    return Passes(
        Pass(forward + device.streams_s(2, norm + 0.6 * logits), 20.0),
        Pass(inputs + device.streams_s(2, 2 * norm + 0.4 * logits), 15.0),
        Pass(weights, 2.0),
        Pass(),
    )


def embedding_passes(model: Model, part: Slice, device: DeviceModel, software: Software) -> Passes:
    """The operations before the first layer: look-up, positions, dropout."""
    size = ELEMENT_BYTES * model.hidden * part.tokens
    forward = Streams(2, 4 * size)
    if model.dropout and software.dropout:
        forward = Streams(3, 6.5 * size)
    return Passes(
        Pass(device.streams_s(*forward), 6.0),
        Pass(device.streams_s(2, 5 * size), 6.0),
        Pass(),
        Pass(),
    )


def joining_passes(ahead: Prediction, part: Slice, device: DeviceModel) -> Passes:
    """The matrix that joins the last vector and the next token's embedding, and their norms."""
    matmuls = ahead.matmuls()
    forward, inputs, weights = _product_seconds(device, matmuls, part.tokens)
    norms = 2 * ELEMENT_BYTES * matmuls[0].k * part.whole_tokens
    return Passes(
        Pass(forward + device.streams_s(1, norms), 4.0),
        Pass(inputs + device.streams_s(1, 2 * norms), 4.0),
        Pass(weights, 1.0),
        Pass(),
    )


def _product_seconds(
    device: DeviceModel, matmuls: tuple[MatMul, ...], tokens: float
) -> tuple[float, float, float]:
    """Forward, for inputs and for weights."""
    forward = inputs = weights = 0.0
    for one in matmuls:
        forward += device.product_s(tokens, one.n, one.k, one.count)
        inputs += device.product_s(tokens, one.k, one.n, one.count)
        weights += device.product_s(one.k, one.n, tokens, one.count)
    return forward, inputs, weights


def _inside_widths(
    block: Block, matmuls: tuple[MatMul, ...], cores: tuple[Core, ...]
) -> Iterator[float]:
    """Elements a token that kernels move between matrices: activations, rotary positions or
    transposes, dispatch to experts."""
    for before, after in pairwise(matmuls):
        part_of = before.name.removesuffix("up")
        if (before.name, after.name) == (f"{part_of}up", f"{part_of}down"):
            yield before.n * before.count * before.rows + after.k * after.count * after.rows
    for core in cores:
        if isinstance(core, AttentionCore):
            yield 2 * (core.query_width + core.key_value_width)
        else:
            yield 4 * (core.conv_channels + core.heads * core.value_dim)
    if block.mixture is not None:
        dispatched = 2 * block.mixture.experts_per_token * block.mixture.expert.hidden
        yield from (dispatched, dispatched)
