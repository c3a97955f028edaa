"""Seconds that a device computes: launch + max(FLOPs / rate, bytes / bandwidth), by size."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from ..accelerators import Accelerator
from .constants import Constants
from .slices import ELEMENT_BYTES
from .software import Software


class Product(NamedTuple):
    """As many matrix products of m x k with k x n as `times` says."""

    m: float
    n: float
    k: float
    times: float


class Pass(NamedTuple):
    """What one pass takes for one micro-batch on one rank: seconds of the device, and kernels that
    its host launches."""

    device_s: float = 0.0
    kernels: float = 0.0

    def then(self, other: Pass) -> Pass:
        """This pass and another."""
        return Pass(self.device_s + other.device_s, self.kernels + other.kernels)


class Passes(NamedTuple):
    """Passes of a part: forward, gradients of inputs and of weights, and what is repeated."""

    forward: Pass
    inputs: Pass
    weights: Pass
    repeated: Pass


class PassTime(NamedTuple):
    """Seconds of one pass: what the device works, and what it waits for its host besides."""

    device_s: float
    wait_s: float


class PartTime(NamedTuple):
    """Seconds of the passes of a part of the model, as in `Passes`."""

    forward: PassTime
    inputs: PassTime
    weights: PassTime
    repeated: PassTime


class DeviceModel:
    """An accelerator as the cost model sees it, for one precision of its matrix products."""

    def __init__(self, accelerator: Accelerator, precision: str, constants: Constants) -> None:
        self._constants = constants
        self._memory_rate = accelerator.memory_bandwidth * constants.memory_share
        self._peak = accelerator.peak_of(precision)
        self._wide_peak = accelerator.peak_of("bf16")
        bandwidth = accelerator.memory_bandwidth
        self._rate = self._reached(self._peak, bandwidth)
        self._wide_rate = self._reached(self._wide_peak, bandwidth)
        self._element_bytes = 1 if precision == "fp8" else ELEMENT_BYTES

    def _reached(self, peak: float, bandwidth: float) -> float:
        c = self._constants
        lack = math.pow(peak / bandwidth / c.matmul_balance, c.matmul_balance_power)
        return peak * c.matmul_share / (1 + lack)

    def product_s(self, m: float, n: float, k: float, times: float = 1) -> float:
        """Seconds of `times` matrix products, m x k with k x n, in the precision of the device."""
        return self._product_s(m, n, k, times, self._rate, self._element_bytes)

    def scores_s(self, products: Iterable[Product]) -> float:
        """Seconds of the products of attention that is not fused, in 16 bits."""
        return sum(self._product_s(*sizes, self._wide_rate, ELEMENT_BYTES) for sizes in products)

    def _product_s(
        self, m: float, n: float, k: float, times: float, rate: float, element_bytes: float
    ) -> float:
        c = self._constants
        area = m * n * times
        reached = area / (area + c.matmul_area) * k / (k + c.matmul_depth)
        arithmetic = 2.0 * area * k / (rate * reached)
        moved = times * (element_bytes * (m * k + k * n) + ELEMENT_BYTES * m * n)
        moved_s = moved / self._memory_rate
        return c.kernel_s + (arithmetic if arithmetic > moved_s else moved_s)

    def streams_s(self, count: int, size: float) -> float:
        """Seconds of so many element-wise kernels that move `size` bytes together."""
        c = self._constants
        return count * c.kernel_s + (size + count * c.memory_half_bytes) / self._memory_rate

    def fused_s(self, flops: float, share: float) -> float:
        """Seconds of fused attention at a share of the peak."""
        return flops / (self._wide_peak * share)

    def scan_s(self, flops: float) -> float:
        """Seconds of a recurrence."""
        return flops / (self._wide_peak * self._constants.scan_share)

    def pass_time(self, work: Pass, software: Software) -> PassTime:
        """Seconds of a pass; the host launches ahead, so that the slower of the two decides."""
        seconds, kernels = work
        if not seconds:
            return PassTime(0.0, 0.0)
        power = self._constants.host_sharpness
        host = kernels * software.host_s_per_kernel
        return PassTime(seconds, seconds * ((1 + (host / seconds) ** power) ** (1 / power) - 1))

    def part_time(self, passes: Passes, software: Software) -> PartTime:
        """Seconds of all passes of a part."""
        return PartTime(*(self.pass_time(work, software) for work in passes))
