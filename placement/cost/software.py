"""Training programs: what they fuse, overlap and keep, which decides a step as devices do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..workload import Fusion, Workload
from ..workload import Software as SoftwareName

_UNFUSED_TRAFFIC, _UNFUSED_KERNELS = 2.0, 1.6
_OLD_KINDS = ("V100", "A100", "A800")


@dataclass(frozen=True, eq=False)
class Software:
    """What a training program does, and how well.

    fused_attention: scores stay on the chip (Dao 2022); without it they are written out.
    attention_share: of the peak, what fused attention reaches on long sequences.
    context_balanced: context-parallel ranks share out causal attention evenly (zig-zag); without
        it the last of c ranks has (2c - 1) / c times its even part.
    element_traffic, element_kernels: memory traffic and launches of element-wise operations over
        those of chains fused as Megatron-LM's.
    dropout: it drops activations where the model asks for it.
    host_s_per_kernel: time of the host to launch a kernel, its part of autograd included.
    collective_launch_s, collective_launch_s_per_rank: least time of a collective: what a host
        needs to start it, and to start it on each of its ranks there.
    tensor_overlap, context_overlap, pipeline_overlap, expert_overlap: the part of tensor- and
        context-parallel collectives, of sends between stages, and of expert all-to-alls that hides
        behind compute.
    dispatch_once: a token goes to each island once and is copied there for its experts (DeepEP);
        without it once for each expert.
    gradient_overlap: of one micro-batch's compute, the part that gradient reduction may hide in.
    gather_overlap: of a step's compute, the part that gathers of sharded parameters may hide in.
    gather_networks: NICs that such a gather drives at once; 0: those of all its ranks on a node.
    gather_share: of the rate of other collectives, what such a gather reaches.
    selective_products: the part of a layer's matrix products that selective recomputation repeats;
        0: it repeats the attention core alone.
    logit_traffic_bytes: memory traffic for each logit: loss and gradient.
    logit_memory_bytes: memory for each logit at the peak.
    optimizer_bytes: memory traffic of the optimizer for each parameter it steps.
    """

    fused_attention: bool
    attention_share: float
    context_balanced: bool
    element_traffic: float
    element_kernels: float
    dropout: bool
    host_s_per_kernel: float
    collective_launch_s: float
    collective_launch_s_per_rank: float
    tensor_overlap: float
    context_overlap: float
    pipeline_overlap: float
    expert_overlap: float
    dispatch_once: bool
    gradient_overlap: float
    gather_overlap: float
    gather_networks: int
    gather_share: float
    selective_products: float
    logit_traffic_bytes: float
    logit_memory_bytes: float
    optimizer_bytes: float


def software_name(workload: Workload, kinds: Iterable[str]) -> SoftwareName:
    """The program of a workload on these kinds of accelerators: what it names, else what was
    measured.

    Published steps on V100, A100 and A800, and in fp16, are Megatron-LM's of 2021 and 2022
    (attention not fused, no overlap); those with sharded parameters PyTorch FSDP2's; all others
    Megatron Core's of 2024 and later.
    """
    if workload.software is not None:
        return workload.software
    if workload.precision == "fp16":
        return "megatron-2021"
    if workload.parallelism.zero == 3:
        return "fsdp"
    old = workload.precision == "bf16" and any(kind.startswith(_OLD_KINDS) for kind in kinds)
    return "megatron-2021" if old else "megatron"


def with_fusion(program: Software, fusion: Fusion | None) -> Software:
    """A program with another fusion than its own.

    Without fusion an activation, a residual and a softmax are two or three kernels each, which
    read and write again what a fused one keeps: about twice the traffic and half as many launches
    more (count of the operations in Shoeybi 2019, section 4).
    """
    if fusion is None:
        return program
    if fusion == "none":
        return replace(
            program,
            fused_attention=False,
            element_traffic=_UNFUSED_TRAFFIC,
            element_kernels=_UNFUSED_KERNELS,
        )
    return replace(
        program,
        fused_attention=fusion == "attention",
        element_traffic=1.0,
        element_kernels=1.0,
    )
