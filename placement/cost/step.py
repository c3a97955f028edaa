"""What `estimate` returns: seconds of a step, what they are made of, and what follows from them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import InvalidInput, Problem
from ..explained import shown

SECONDS_A_DAY = 86_400.0
SECONDS_AN_HOUR = 3_600.0
JOULES_A_KWH = 3.6e6


@dataclass(frozen=True, slots=True)
class StepEstimate:
    """A training step on a cluster.

    step_s: seconds of a step; tokens_per_s: of the whole job.
    mfu: model FLOPs (`training_flops_per_token`: no recomputation, causal attention counted half)
        over step_s x the peak of all devices in the precision of the workload.
    breakdown: seconds of the slowest stage by what it does; they add up to step_s.
        compute, recompute: passes of the model; launch: waiting for the host; tensor_parallel,
        context_parallel, expert_parallel, pipeline_transfer, data_parallel: communication that does
        not hide behind compute; bubble: waiting for other stages; optimizer.
    memory_bytes: of the fullest rank; memory: what it is made of; memory_limit_bytes: of a device.
    slowest_stage, fullest_stage: pipeline stages, from 0. slowest_rank: the first rank of that one.
    devices: how many; power_w: of a device, None where the catalog does not know it.
    software: the training program whose habits were assumed (`Workload.software`).
    """

    step_s: float
    tokens_per_s: float
    mfu: float
    memory_bytes: float
    breakdown: dict[str, float]
    memory: dict[str, float]
    memory_limit_bytes: float
    slowest_stage: int
    slowest_rank: int
    fullest_stage: int
    devices: int
    model_flops: float
    power_w: float | None
    software: str

    @property
    def fits(self) -> bool:
        """Whether the fullest rank fits into its device's memory."""
        return self.memory_bytes <= self.memory_limit_bytes

    @property
    def tokens_per_s_per_device(self) -> float:
        """Tokens a second and device."""
        return self.tokens_per_s / self.devices

    def days(self, tokens: float) -> float:
        """Days to train on so many tokens, without interruption."""
        return _number("tokens", tokens) / self.tokens_per_s / SECONDS_A_DAY

    def device_hours(self, tokens: float) -> float:
        """Device hours to train on so many tokens."""
        seconds = _number("tokens", tokens) / self.tokens_per_s
        return seconds / SECONDS_AN_HOUR * self.devices

    def cost(self, tokens: float, price_per_device_hour: float) -> float:
        """Price to train on so many tokens, in the currency of the price."""
        price = _number("price_per_device_hour", price_per_device_hour)
        return self.device_hours(tokens) * price

    def energy_kwh(self, tokens: float, pue: float = 1.2, power_w: float | None = None) -> float:
        """Energy to train on so many tokens: device power x time x PUE.

        pue: energy of the whole site over that of its devices. power_w: of a device; that of its
        accelerator by default. Raises InvalidInput where neither is known.
        """
        power = self.power_w if power_w is None else power_w
        if power is None:
            fix = "give power_w here, or in the cluster file's accelerators"
            raise InvalidInput("energy_kwh", [Problem("power_w", "power of a device unknown", fix)])
        power, pue = _number("power_w", power), _number("pue", pue, least=1.0)
        return self.device_hours(tokens) * SECONDS_AN_HOUR * power * pue / JOULES_A_KWH


def _number(name: str, value: float, least: float = 0.0) -> float:
    """A finite number of `least` or more. Raises InvalidInput for anything else."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < least:
        fix = f"give a finite number, {least:g} or more"
        raise InvalidInput("StepEstimate", [Problem(name, f"found {shown(value)}", fix)])
    return value
