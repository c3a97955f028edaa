"""Rules of data: tokens of a sample, samples of a step, and which ranks see which."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ..errors import Problem
from .order import DIMENSIONS
from .rule_text import does_not_divide

if TYPE_CHECKING:
    from ..workload import Workload


def sequence_divides(workload: Workload) -> Iterator[Problem]:
    """cp divides every sequence, and what is left is divided by tp with sequence parallelism."""
    split = workload.parallelism
    over = split.tp if split.sequence_parallel else 1
    if split.cp * over == 1:
        return
    for what, sequence in _sequences(workload):
        if sequence % split.cp:
            yield does_not_divide("cp", split.cp, sequence, f"{what} {sequence}")
        elif sequence // split.cp % over:
            inside = sequence // split.cp
            of = f"{what} {sequence}" + (f" / cp {split.cp}" if split.cp > 1 else "")
            yield does_not_divide("tp", split.tp, inside, of)


def causal_rings_are_even(workload: Workload) -> Iterator[Problem]:
    """2 x cp divides the sequence of causal ring attention: each rank has an early and a late
    piece, so that all have as much to do (zig-zag, 2 cp pieces)."""
    split, model = workload.parallelism, workload.model
    if split.cp == 1 or split.context_form != "ring" or workload.sequence % split.cp:
        return
    causal = any(b.attention is not None and b.attention.causal for _, b in model.kinds)
    if causal and workload.sequence % (2 * split.cp):
        pieces = 2 * split.cp
        found = (
            f"cp {split.cp}: sequence {workload.sequence} is not {pieces} equal pieces "
            f"({workload.sequence / pieces:.6g} each), so ranks would differ in work"
        )
        fix = f"make the sequence a multiple of {pieces}"
        yield Problem("sequence", found, fix)


def positions_suffice(workload: Workload) -> Iterator[Problem]:
    """Learned positions reach as far as the sequence."""
    model, sequence = workload.model, workload.sequence
    if model.positions == "learned" and model.sequence and sequence > model.sequence:
        found = f"sequence {sequence} over the model's {model.sequence} learned positions"
        yield Problem("sequence", found, f"give {model.sequence} at most")


def batch_divides(workload: Workload) -> Iterator[Problem]:
    """global_batch = dp x micro_batch x micro-batches, a whole number of them."""
    split, batch = workload.parallelism, workload.global_batch
    a_round = split.dp * workload.micro_batch
    if batch % a_round:
        found = (
            f"global_batch {batch} over dp {split.dp} x micro_batch {workload.micro_batch} "
            f"is {batch / a_round:.6g} micro-batches"
        )
        near = [count * a_round for count in (batch // a_round, batch // a_round + 1) if count]
        fix = f"make it a multiple of {a_round}, such as {' or '.join(map(str, near))}"
        yield Problem("global_batch", found, fix)


def interleaving_rounds(workload: Workload) -> Iterator[Problem]:
    """The interleaved schedule works in rounds of pp micro-batches."""
    split = workload.parallelism
    a_round = split.dp * workload.micro_batch
    if split.virtual_pp == 1 or workload.global_batch % a_round:
        return
    if workload.micro_batches % split.pp:
        found = (
            f"{workload.micro_batches} micro-batches over pp {split.pp}; "
            "the interleaved schedule works in rounds of pp"
        )
        fix = f"make global_batch a multiple of {a_round * split.pp}, or use virtual_pp 1"
        yield Problem("global_batch", found, fix)


def order_names_dimensions(workload: Workload) -> Iterator[Problem]:
    """The rank order names every dimension that is used, and each once. The grid then gives all
    tensor-, context- and pipeline-parallel ranks of a replica the same samples."""
    named = workload.rank_order.split("-")
    split = workload.parallelism
    needed = {dim for dim in DIMENSIONS if getattr(split, dim) > 1}
    if len(set(named)) == len(named) and needed <= set(named) <= set(DIMENSIONS):
        return
    fix = f"name each of {', '.join(DIMENSIONS)} once, joined by '-' (those of degree 1 may go)"
    yield Problem("rank_order", f"found {workload.rank_order!r}", fix)


def _sequences(workload: Workload) -> Iterator[tuple[str, int]]:
    model = workload.model
    yield "sequence", workload.sequence
    if model.encoder is not None:
        yield "encoder sequence", workload.encoder_sequence
    if workload.tower_inputs:
        for tower in model.towers:
            if tower.sequence is not None:
                yield f"{tower.name} tokens", workload.tower_inputs * tower.sequence


BATCH_RULES: dict[str, Callable[[Workload], Iterator[Problem]]] = {
    rule.__name__: rule
    for rule in (
        sequence_divides,
        causal_rings_are_even,
        positions_suffice,
        batch_divides,
        interleaving_rounds,
        order_names_dimensions,
    )
}
