"""The built-in accelerator catalog: memory, peak arithmetic and link rates by name."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from .quantities import NonNegative, Positive


class Accelerator(BaseModel):
    """One kind of device, by the numbers that decide placement and step time.

    `memory_bytes`; `peak_flops` in FLOP/s per precision (dense); `memory_bandwidth` in bytes/s;
    `scale_up_bandwidth` in bytes/s per device and direction over NVLink or a like link.
    `switch_reduces`: the scale-up switch adds in flight (NVLS). `power_w`: what a device and its
    share of the board draw under load, where it is known.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    memory_bytes: int = Field(gt=0)
    peak_flops: dict[str, Positive]
    memory_bandwidth: Positive
    scale_up_bandwidth: NonNegative
    switch_reduces: bool = False
    power_w: Positive | None = None

    def peak_of(self, precision: str) -> float:
        """Peak FLOP/s in a precision; of a wider one where the device does not have it."""
        wider = (precision, "bf16", "fp16", "fp32")
        known = next((name for name in wider if name in self.peak_flops), None)
        return self.peak_flops[known] if known else max(self.peak_flops.values())


def _entry(
    memory_gib: float,
    bf16: float,
    fp16: float,
    fp8: float | None,
    memory: float,
    scale_up: float,
    power_w: float | None,
    switch_reduces: bool = False,
) -> Accelerator:
    peaks = {"bf16": bf16 * 1e12, "fp16": fp16 * 1e12}
    if fp8 is not None:
        peaks["fp8"] = fp8 * 1e12
    return Accelerator(
        memory_bytes=int(memory_gib * 2**30),
        peak_flops=peaks,
        memory_bandwidth=memory * 1e9,
        scale_up_bandwidth=scale_up * 1e9,
        switch_reduces=switch_reduces,
        power_w=power_w,
    )


# Vendor data sheets: memory GiB, dense TFLOP/s bf16, fp16, fp8, memory GB/s, scale-up GB/s one way,
# W. The chips named by their TFLOP/s are a published comparison of arithmetic that outgrows one
# memory; their links are not told, and taken to be an A800's.
CATALOG: dict[str, Accelerator] = {
    "V100": _entry(32, 125.0, 125.0, None, 900, 150, 300),
    "A100-40G": _entry(40, 312.0, 312.0, None, 1555, 300, 400),
    "A100-80G": _entry(80, 312.0, 312.0, None, 2039, 300, 400),
    "A800-80G": _entry(80, 312.0, 312.0, None, 2039, 200, 400),
    "H100-SXM": _entry(80, 989.4, 989.4, 1978.9, 3350, 450, 700, switch_reduces=True),
    "H100-PCIe": _entry(80, 756.0, 756.0, 1513.0, 2000, 300, 350),
    "H800": _entry(80, 989.4, 989.4, 1978.9, 3350, 200, 700, switch_reduces=True),
    "H200": _entry(141, 989.4, 989.4, 1978.9, 4800, 450, 700, switch_reduces=True),
    "B200": _entry(180, 2250.0, 2250.0, 4500.0, 7700, 900, 1000, switch_reduces=True),
    "GB200": _entry(186, 2500.0, 2500.0, 5000.0, 8000, 900, 1200, switch_reduces=True),
    "MI300X": _entry(192, 1307.4, 1307.4, 2614.9, 5300, 448, 750),
    "Gaudi2": _entry(96, 432.0, 432.0, 865.0, 2450, 262.5, 600),
    "Gaudi3": _entry(128, 1835.0, 1835.0, 1835.0, 3700, 525, 900),
    "Ascend-910B": _entry(64, 376.0, 376.0, None, 1600, 196, 400),
    "chip-148T": _entry(96, 148.0, 148.0, None, 2450, 200, None),
    "chip-298T": _entry(96, 298.0, 298.0, None, 2450, 200, None),
    "chip-443T": _entry(96, 443.0, 443.0, None, 2450, 200, None),
}
