"""What a rank computes for one micro-batch: matrix products, attention, and passes over memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from ..models import AttentionCore, Block, MatMul, Model, Prediction
from ..models.work import Core
from .software import Software

ELEMENT_BYTES = 2
"""Bytes of an activation: bf16 and fp16; fp8 training keeps them so, and casts for products."""
BACKWARD_ATTENTION = 2.5
"""FLOPs of fused attention backward over forward: scores are computed again (Dao 2022)."""


class Product(NamedTuple):
    """As many matrix products of m x k with k x n as `times` says."""

    m: float
    n: float
    k: float
    times: float


class Pass(NamedTuple):
    """Operations of one pass, for one micro-batch on one rank.

    products: with weights. scores: products of attention that writes its scores. fused: FLOPs of
    attention that does not; scanned: of recurrences. streams: bytes that each element-wise kernel
    moves. kernels: launches by the host.
    """

    products: tuple[Product, ...] = ()
    scores: tuple[Product, ...] = ()
    fused: float = 0.0
    scanned: float = 0.0
    streams: tuple[float, ...] = ()
    kernels: float = 0.0

    def then(self, other: Pass) -> Pass:
        """This pass and another."""
        return Pass(
            self.products + other.products,
            self.scores + other.scores,
            self.fused + other.fused,
            self.scanned + other.scanned,
            self.streams + other.streams,
            self.kernels + other.kernels,
        )


class Passes(NamedTuple):
    """Passes of a part: forward, gradients of inputs and of weights, and what is repeated."""

    forward: Pass
    inputs: Pass
    weights: Pass
    repeated: Pass


class Slice(NamedTuple):
    """The part of a layer that a rank works on.

    sequence, samples: tokens of a sample, and samples of a micro-batch. source: tokens of a sample
    in the encoder, for cross-attention. split_sequence: sequence_parallel. The rest as in
    `Parallelism` and `Workload`.
    """

    sequence: int
    samples: int
    tp: int = 1
    cp: int = 1
    ep: int = 1
    expert_tp: int = 1
    split_sequence: bool = False
    recompute: str = "none"
    fp8: bool = False
    source: int | None = None
    vocabulary_tp: int = 1
    tower_inputs: int = 0
    fp8_dispatch: bool = False

    @property
    def exchanges_tokens(self) -> bool:
        """Whether tokens travel to their experts."""
        return self.ep > 1 or self.expert_tp != self.tp

    @property
    def tokens(self) -> float:
        """Tokens of the rank's micro-batch."""
        return self.samples * self.sequence / self.cp

    @property
    def whole_tokens(self) -> float:
        """Tokens whose elements the rank has whole, outside the tensor-parallel parts."""
        return self.tokens / self.tp if self.split_sequence else self.tokens

    def tokens_of(self, matmul: MatMul) -> float:
        """Rows of a matrix product on this rank."""
        if matmul.source == "encoder" and self.source is not None:
            return matmul.rows * self.samples * self.source / self.cp
        return matmul.rows * self.tokens


def block_passes(block: Block, part: Slice, software: Software, dropout: bool) -> Passes:
    """The operations of one layer.

    Memory traffic of the element-wise kernels: a norm reads and writes its input, a residual reads
    two tensors and writes one (and a mask, with dropout), an activation reads what the product
    before it wrote and writes its result; backward all of it is twice. Attention that is not fused
    writes its scores, and reads and writes them for softmax and again for dropout (the kernels of
    Megatron-LM, Shoeybi 2019).
    """
    dropout = dropout and software.dropout
    matmuls = block.matmuls(part.tp, part.ep, part.expert_tp)
    cores = block.cores(part.tp)
    products = tuple(Product(part.tokens_of(m), m.n, m.k, m.count) for m in matmuls)
    elements = (*_whole_streams(block, part, dropout), *_split_streams(block, matmuls, cores, part))
    streams = tuple(software.element_traffic * stream for stream in elements)
    kernels = 2.0 * len(matmuls) + software.element_kernels * len(streams)
    mixing = Pass()
    for core in cores:
        mixing = mixing.then(_mixing(core, part, software, dropout))
    plain = Pass(products, streams=streams, kernels=kernels)
    repeated = _repeated(plain, mixing, part.recompute, software)
    backward = Pass(
        tuple(Product(m, k, n, times) for m, n, k, times in products),
        streams=tuple(2 * stream for stream in streams),
        kernels=1.5 * kernels,
    )
    weights = Pass(
        tuple(Product(k, n, m, times) for m, n, k, times in products), kernels=0.5 * kernels
    )
    forward = plain.then(mixing)
    if part.fp8:
        forward = forward.then(_casts(matmuls, part, [m.k for m in matmuls]))
        backward = backward.then(_casts(matmuls, part, [m.n for m in matmuls]))
    return Passes(forward, backward.then(_backward(mixing)), weights, repeated)


def head_passes(model: Model, part: Slice, software: Software) -> Passes:
    """The operations after the last layer: final norm, logits and loss."""
    if model.head is None:
        return Passes(Pass(), Pass(), Pass(), Pass())
    matmuls = model.head.matmuls(part.vocabulary_tp)
    products = tuple(Product(part.tokens, m.n, m.k, m.count) for m in matmuls)
    logits = software.logit_traffic_bytes * part.tokens * matmuls[-1].n
    norm = 2.0 * ELEMENT_BYTES * model.hidden * part.whole_tokens
    return Passes(
        Pass(products, streams=(norm, 0.6 * logits), kernels=20.0),
        Pass(
            tuple(Product(m, k, n, times) for m, n, k, times in products),
            streams=(2 * norm, 0.4 * logits),
            kernels=15.0,
        ),
        Pass(tuple(Product(k, n, m, times) for m, n, k, times in products), kernels=2.0),
        Pass(),
    )


def embedding_passes(model: Model, part: Slice, software: Software) -> Passes:
    """The operations before the first layer: look-up, positions, dropout."""
    size = ELEMENT_BYTES * model.hidden * part.tokens
    forward = [2 * size, 2 * size]
    if model.dropout and software.dropout:
        forward.append(2.5 * size)
    return Passes(
        Pass(streams=tuple(forward), kernels=6.0),
        Pass(streams=(3 * size, 2 * size), kernels=6.0),
        Pass(),
        Pass(),
    )


def joining_passes(ahead: Prediction, part: Slice) -> Passes:
    """The matrix that joins the last vector and the next token's embedding, and their norms."""
    (matmul,) = ahead.matmuls()
    product = Product(part.tokens, matmul.n, matmul.k, 1)
    m, n, k, _ = product
    norms = 2 * ELEMENT_BYTES * matmul.k * part.whole_tokens
    return Passes(
        Pass((product,), streams=(norms,), kernels=4.0),
        Pass((Product(m, k, n, 1),), streams=(2 * norms,), kernels=4.0),
        Pass((Product(k, n, m, 1),), kernels=1.0),
        Pass(),
    )


def _whole_streams(block: Block, part: Slice, dropout: bool) -> Iterator[float]:
    """Norms and residuals."""
    size = ELEMENT_BYTES * block.hidden * part.whole_tokens
    yield from [2 * size] * block.norms
    parts = sum(p is not None for p in (block.mixer, block.cross, block.feed_forward))
    yield from [(3.5 if dropout else 3.0) * size] * parts


def _split_streams(
    block: Block, matmuls: tuple[MatMul, ...], cores: tuple[Core, ...], part: Slice
) -> Iterator[float]:
    """Activations between matrices, rotary positions or transposes, dispatch to experts."""
    for before, after in pairwise(matmuls):
        part_of = before.name.removesuffix("up")
        if (before.name, after.name) == (f"{part_of}up", f"{part_of}down"):
            width = before.n * before.count * before.rows + after.k * after.count * after.rows
            yield ELEMENT_BYTES * width * part.tokens
    for core in cores:
        if isinstance(core, AttentionCore):
            yield 2 * ELEMENT_BYTES * (core.query_width + core.key_value_width) * part.tokens
        else:
            width = core.conv_channels + core.heads * core.value_dim
            yield 4 * ELEMENT_BYTES * width * part.tokens
    if block.mixture is not None:
        copies = block.mixture.experts_per_token * block.mixture.expert.hidden
        dispatched = 2 * ELEMENT_BYTES * copies * part.tokens
        yield from (dispatched, dispatched)


def _mixing(core: Core, part: Slice, software: Software, dropout: bool) -> Pass:
    flops = core.flops_per_token(part.sequence, part.source) * part.tokens
    if not isinstance(core, AttentionCore):
        return Pass(scanned=flops, kernels=8.0)
    if software.fused_attention:
        if core.causal and not software.context_balanced:
            flops *= (2 * part.cp - 1) / part.cp
        return Pass(fused=flops, kernels=2.0)
    keys = part.source if core.cross and part.source is not None else part.sequence
    rows, heads = part.sequence / part.cp, part.samples * core.heads
    products = (Product(rows, keys, core.qk_dim, heads), Product(rows, core.v_dim, keys, heads))
    scores = software.element_traffic * ELEMENT_BYTES * heads * rows * keys
    streams = (2 * scores, 2.5 * scores) if dropout else (2 * scores,)
    return Pass(scores=products, streams=streams, kernels=8.0)


def _backward(mixing: Pass) -> Pass:
    swapped = tuple(
        product
        for m, n, k, times in mixing.scores
        for product in (Product(m, k, n, times), Product(k, n, m, times))
    )
    streams = tuple(1.5 * stream for stream in mixing.streams)
    again = BACKWARD_ATTENTION
    return Pass(
        (), swapped, again * mixing.fused, again * mixing.scanned, streams, 2 * mixing.kernels
    )


def _casts(matmuls: tuple[MatMul, ...], part: Slice, widths: list[int]) -> Pass:
    """Reading each tensor in 16 bits, writing it in 8, and its transpose."""
    return Pass(
        streams=tuple(
            4.0 * width * matmul.count * part.tokens_of(matmul)
            for matmul, width in zip(matmuls, widths, strict=True)
        )
    )


def _repeated(plain: Pass, mixing: Pass, recompute: str, software: Software) -> Pass:
    if recompute == "full":
        return plain.then(mixing)
    if recompute == "none":
        return Pass()
    part = software.selective_products
    if not part:
        return mixing
    again = tuple(Product(m, n, k, part * times) for m, n, k, times in plain.products)
    return Pass(again, streams=plain.streams, kernels=part * plain.kernels)
