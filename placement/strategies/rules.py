"""The rules that a split must meet by itself, whatever the cluster: each one a function.

What depends on a cluster is in `cluster_rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ..errors import Problem
from ..models import Attention, Block, LatentAttention, Stack
from ..models.work import AttentionCore
from .batch_rules import BATCH_RULES
from .rule_text import divisors, does_not_divide
from .stage_rules import STAGE_RULES

if TYPE_CHECKING:
    from ..workload import Workload

Rule = Callable[["Workload"], Iterator[Problem]]


def broken_rules(workload: Workload) -> list[Problem]:
    """Every rule of the split that a workload breaks, each with the number that breaks it."""
    return [problem for rule in RULES.values() for problem in rule(workload)]


def tensor_divides(workload: Workload) -> Iterator[Problem]:
    """tp divides heads, channels and feed-forward widths of every layer; etp those of experts."""
    split = workload.parallelism
    if split.tp == split.expert_tp == 1:
        return
    for things, count in dict.fromkeys(
        pair for block in _blocks(workload) for pair in block.tensor_splits
    ):
        name, degree = ("etp", split.expert_tp) if things == "expert ffn" else ("tp", split.tp)
        if split.etp is None:
            name = "tp"
        if count % degree:
            yield does_not_divide(name, degree, count, f"{things} {count}")


def key_value_heads_divide(workload: Workload) -> Iterator[Problem]:
    """Of tp and the key/value heads one divides the other, so that each rank has whole heads."""
    tp = workload.parallelism.tp
    for heads in _key_value_heads(workload):
        if heads % tp and tp % heads:
            found = f"tp {tp} and kv_heads {heads}: neither divides the other"
            fix = "make one a multiple of the other, so that each rank has whole heads"
            yield Problem("parallelism.tp", found, fix)


def experts_divide(workload: Workload) -> Iterator[Problem]:
    """ep divides the experts of every mixture, so that each is on exactly one rank of a group."""
    ep = workload.parallelism.ep
    if ep == 1:
        return
    counts = {b.mixture.experts for b in _blocks(workload) if b.mixture is not None}
    if not counts:
        found = f"ep {ep}, but the model has no experts"
        yield Problem("parallelism.ep", found, "use ep 1")
    for count in sorted(counts):
        if count % ep:
            yield does_not_divide("ep", ep, count, f"experts {count}")


def expert_ranks_divide(workload: Workload) -> Iterator[Problem]:
    """etp x ep divides the ranks of a stage, tp x cp x dp (ep divides cp x dp where etp is tp)."""
    split = workload.parallelism
    stage, group = split.tp * split.cp * split.dp, split.expert_tp * split.ep
    if not stage % group:
        return
    if split.expert_tp == split.tp:
        copies = split.cp * split.dp
        found = f"ep {split.ep} does not divide cp x dp = {copies} ({copies / split.ep:.6g} groups)"
        yield Problem("parallelism.ep", found, f"use one of {divisors(copies)}")
        return
    found = (
        f"etp {split.expert_tp} x ep {split.ep} = {group} does not divide the tp x cp x dp = "
        f"{stage} ranks of a stage ({stage / group:.6g} groups)"
    )
    yield Problem("parallelism.ep", found, f"make etp x ep one of {divisors(stage)}")


def expert_tensor_needs_experts(workload: Workload) -> Iterator[Problem]:
    """etp is for models with experts."""
    etp = workload.parallelism.etp
    if etp not in (None, workload.parallelism.tp) and not any(
        block.mixture is not None for block in _blocks(workload)
    ):
        found = f"etp {etp}, but the model has no experts"
        yield Problem("parallelism.etp", found, "leave it out")


def experts_need_split_sequence(workload: Workload) -> Iterator[Problem]:
    """Where tokens travel to experts, tensor-parallel ranks have different tokens: else each token
    would arrive tp times."""
    split = workload.parallelism
    if split.tp > 1 and split.exchanges_tokens and not split.sequence_parallel:
        found = (
            f"ep {split.ep} and tp {split.tp} without sequence_parallel: tokens sent {split.tp}x"
        )
        yield Problem("parallelism.sequence_parallel", found, "use sequence_parallel, or tp 1")


def context_divides_heads(workload: Workload) -> Iterator[Problem]:
    """All-to-all context parallelism gives each rank whole heads: cp divides those of a
    tensor-parallel rank. Recurrent mixers use it in either form."""
    split = workload.parallelism
    if split.cp == 1:
        return
    found: dict[tuple[str, int], None] = {}
    for block in _blocks(workload):
        for core in block.cores(split.tp):
            if not isinstance(core, AttentionCore):
                if core.rule != "diagonal":
                    found["recurrent heads", core.heads] = None
            elif split.context_form == "all-to-all":
                found["heads", core.heads] = None
                found["kv_heads", core.kv_heads] = None
    for things, count in found:
        if count % split.cp:
            text = (
                f"cp {split.cp} does not divide the {count} {things} of a tensor-parallel rank "
                f"({count / split.cp:.6g} each)"
            )
            fix = f"use one of {divisors(count)}"
            if things != "recurrent heads":
                fix += ', or context_form "ring"'
            yield Problem("parallelism.cp", text, fix)


def one_copy_of_shared_layers(workload: Workload) -> Iterator[Problem]:
    """Layers that share one set of parameters are on one stage: no replica has them twice."""
    pp = workload.parallelism.pp
    if pp > 1 and workload.model.stack.shared:
        found = f"pp {pp}, but all layers share one set of parameters: {pp} copies a replica"
        yield Problem("parallelism.pp", found, "use pp 1")


def sharding_is_whole(workload: Workload) -> Iterator[Problem]:
    """Shard groups are equal parts of the ranks with the same parameters, dense and expert."""
    split = workload.parallelism
    if split.reshard_parameters and split.zero < 3:
        found = f"parameters cannot be shared out again with zero {split.zero}"
        yield Problem("parallelism.reshard_parameters", found, "use zero 3")
    if split.shard is None:
        return
    copies = split.dp * split.cp
    if split.zero == 0:
        found = f"shard {split.shard}, but zero 0 shares nothing out"
        yield Problem("parallelism.shard", found, "leave it out, or use zero 1 to 3")
    if copies % split.shard:
        found = f"shard {split.shard} does not divide dp x cp = {copies}"
        yield Problem(
            "parallelism.shard",
            f"{found} ({copies / split.shard:.6g} replicas)",
            f"use one of {divisors(copies)}",
        )
    inside, group = split.shard * split.tp, split.expert_tp * split.ep
    if workload.model.mixture is not None and inside % group:
        found = f"etp x ep = {group} does not divide shard x tp = {inside}"
        fix = "use a larger shard, so that a shard group has all experts"
        yield Problem("parallelism.shard", f"{found} ({inside / group:.6g})", fix)


def tower_tokens_known(workload: Workload) -> Iterator[Problem]:
    """Towers that are trained have a known number of tokens an input."""
    if not workload.tower_inputs:
        return
    if not workload.model.towers:
        found = f"{workload.tower_inputs} inputs, but the model has no towers"
        yield Problem("tower_inputs", found, "leave it out")
    for index, tower in enumerate(workload.model.towers):
        if tower.sequence is None:
            fix = "give the tower's sequence, or tower_inputs 0"
            yield Problem(f"model.towers[{index}].sequence", "unknown", fix)


MODEL_RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        tensor_divides,
        key_value_heads_divide,
        experts_divide,
        expert_ranks_divide,
        expert_tensor_needs_experts,
        experts_need_split_sequence,
        context_divides_heads,
        one_copy_of_shared_layers,
        sharding_is_whole,
        tower_tokens_known,
    )
}
RULES: dict[str, Rule] = MODEL_RULES | STAGE_RULES | BATCH_RULES
"""Every rule by its name, in the order in which they are told."""


def stacks(workload: Workload) -> Iterator[Stack]:
    """Every stack of layers that is trained."""
    model = workload.model
    yield model.stack
    if model.encoder is not None:
        yield model.encoder.stack
    if workload.tower_inputs:
        yield from (tower.stack for tower in model.towers)
    if model.prediction is not None:
        yield model.prediction.stack


def _blocks(workload: Workload) -> Iterator[Block]:
    return (block for stack in stacks(workload) for _, block in stack.kinds)


def _key_value_heads(workload: Workload) -> dict[int, None]:
    found: dict[int, None] = {}
    for block in _blocks(workload):
        for part in (block.mixer, block.cross):
            if isinstance(part, Attention | LatentAttention):
                found[part.kv_heads] = None
    return found
