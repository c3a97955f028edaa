"""Seconds that a device computes: launch + max(FLOPs / rate, bytes / bandwidth), by size."""

from __future__ import annotations

import math
from typing import NamedTuple

from ..accelerators import Accelerator
from .constants import Constants
from .operations import ELEMENT_BYTES, Pass, Passes, Product
from .software import Software


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

    def product_s(self, product: Product) -> float:
        """Seconds of a matrix product in the precision of the device."""
        return self._product_s(product, self._rate, self._element_bytes)

    def _product_s(self, product: Product, rate: float, element_bytes: float) -> float:
        m, n, k, times = product
        c = self._constants
        area = m * n * times
        reached = area / (area + c.matmul_area) * k / (k + c.matmul_depth)
        arithmetic = 2.0 * area * k / (rate * reached)
        moved = times * (element_bytes * (m * k + k * n) + ELEMENT_BYTES * m * n)
        return c.kernel_s + max(arithmetic, moved / self._memory_rate)

    def stream_s(self, size: float) -> float:
        """Seconds of an element-wise kernel that moves `size` bytes."""
        c = self._constants
        return c.kernel_s + (size + c.memory_half_bytes) / self._memory_rate

    def pass_time(self, work: Pass, software: Software) -> PassTime:
        """Seconds of a pass; the host launches ahead, so that the slower of the two decides."""
        seconds = work.fused / (self._wide_peak * software.attention_share)
        seconds += work.scanned / (self._wide_peak * self._constants.scan_share)
        for product in work.products:
            seconds += self._product_s(product, self._rate, self._element_bytes)
        for product in work.scores:
            seconds += self._product_s(product, self._wide_rate, ELEMENT_BYTES)
        for stream in work.streams:
            seconds += self.stream_s(stream)
        if not seconds:
            return PassTime(0.0, 0.0)
        power = self._constants.host_sharpness
        host = work.kernels * software.host_s_per_kernel
        return PassTime(seconds, seconds * ((1 + (host / seconds) ** power) ** (1 / power) - 1))

    def part_time(self, passes: Passes, software: Software) -> PartTime:
        """Seconds of all passes of a part."""
        return PartTime(*(self.pass_time(work, software) for work in passes))
