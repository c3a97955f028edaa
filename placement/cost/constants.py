"""The fitted constants of the cost model: one set for every model, split and cluster.

Fitted by `python -m benchmarks.calibrate` on published measurements of steps and collectives;
docs/cost-model.md says on which, how far each family of them is missed, and which constants come
from publications instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..workload import Software as SoftwareName
from .software import Software


@dataclass(frozen=True)
class Constants:
    """Constants of the cost model.

    matmul_share, matmul_balance, matmul_balance_power: a large matrix product reaches
        share / (1 + (balance / matmul_balance) ^ power) of the peak, where balance is the peak over
        the memory bandwidth in FLOP/byte: the faster the arithmetic for its memory and its power,
        the less of it can be used.
    matmul_area, matmul_depth: outputs (m x n x count), and inner size k, at which half of that is
        reached: fewer outputs leave units idle, a short k does not hide the start of a tile.
    scan_share: of the peak, what recurrences (Mamba, delta rule) reach.
    memory_share, memory_half_bytes: part of the memory bandwidth that long element-wise kernels
        reach, and the size at which half of that is reached.
    kernel_s: time of a kernel that does nothing.
    host_sharpness: p in (host^p + device^p)^(1/p), the time of a pass: the host runs ahead of the
        device, so that the slower of the two decides.
    link_share: of the scale-up rate, what rings reach. switch_share: what an all-reduce in the
        switches (NVLS) reaches, as bytes of the tensor over the scale-up rate.
    network_share: of a NIC's rate, what collectives reach.
    segment_s, network_segment_s: a transfer of t seconds cut into segments that each cost so much
        takes (sqrt(segment) + sqrt(t))^2 at the best cut, over scale-up links and the network.
    framework_bytes: device memory of contexts and libraries; communicator_bytes: of the buffers of
        each communicator.
    software: what each training program does.
    """

    matmul_share: float
    matmul_balance: float
    matmul_balance_power: float
    matmul_area: float
    matmul_depth: float
    scan_share: float
    memory_share: float
    memory_half_bytes: float
    kernel_s: float
    host_sharpness: float
    link_share: float
    switch_share: float
    network_share: float
    segment_s: float
    network_segment_s: float
    framework_bytes: float
    communicator_bytes: float
    software: Mapping[SoftwareName, Software]


CONSTANTS = Constants(
    matmul_share=1.0,
    matmul_balance=909.0,
    matmul_balance_power=0.638,
    matmul_area=8.68e05,
    matmul_depth=247.0,
    scan_share=0.0112,
    memory_share=0.811,
    memory_half_bytes=5e5,
    kernel_s=2e-6,
    host_sharpness=6.0,
    link_share=0.79,
    switch_share=0.621,
    network_share=0.943,
    segment_s=3.79e-06,
    network_segment_s=1e-06,
    framework_bytes=1.0e9,
    communicator_bytes=0.9e9,
    software={
        "megatron-2021": Software(
            fused_attention=False,
            attention_share=0.34,
            context_balanced=True,
            element_traffic=1.0,
            element_kernels=1.0,
            dropout=True,
            host_s_per_kernel=3.55e-05,
            collective_launch_s=4.73e-05,
            collective_launch_s_per_rank=2.72e-06,
            tensor_overlap=0.159,
            context_overlap=0.0,
            pipeline_overlap=0.907,
            expert_overlap=0.0,
            dispatch_once=False,
            gradient_overlap=0.0,
            gather_overlap=0.566,
            gather_networks=1,
            gather_share=0.797,
            selective_products=0.0,
            logit_traffic_bytes=36.5,
            logit_memory_bytes=4.0,
            optimizer_bytes=25.8,
        ),
        "megatron": Software(
            fused_attention=True,
            attention_share=0.524,
            context_balanced=True,
            element_traffic=1.0,
            element_kernels=1.0,
            dropout=False,
            host_s_per_kernel=8e-6,
            collective_launch_s=6.96e-06,
            collective_launch_s_per_rank=0.0,
            tensor_overlap=0.746,
            context_overlap=0.638,
            pipeline_overlap=0.556,
            expert_overlap=0.0,
            dispatch_once=True,
            gradient_overlap=0.525,
            gather_overlap=1.0,
            gather_networks=0,
            gather_share=1.0,
            selective_products=0.0,
            logit_traffic_bytes=20.0,
            logit_memory_bytes=4.0,
            optimizer_bytes=40.0,
        ),
        "fsdp": Software(
            fused_attention=True,
            attention_share=0.34,
            context_balanced=False,
            element_traffic=3.07,
            element_kernels=1.0,
            dropout=False,
            host_s_per_kernel=8e-6,
            collective_launch_s=6.96e-06,
            collective_launch_s_per_rank=0.0,
            tensor_overlap=0.0,
            context_overlap=0.0,
            pipeline_overlap=0.0,
            expert_overlap=0.0,
            dispatch_once=False,
            gradient_overlap=0.9,
            gather_overlap=1.0,
            gather_networks=0,
            gather_share=1.0,
            selective_products=0.5,
            logit_traffic_bytes=40.0,
            logit_memory_bytes=14.0,
            optimizer_bytes=40.0,
        ),
    },
)
