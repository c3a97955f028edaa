"""The built-in accelerator catalog: memory, peak arithmetic and link rates by name."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from .quantities import NonNegative, Positive


class Accelerator(BaseModel):
    """One kind of device, by the numbers that decide placement and step time.

    `memory_bytes`; `peak_flops` in FLOP/s per precision (dense); `memory_bandwidth` in bytes/s;
    `scale_up_bandwidth` in bytes/s per device and direction over NVLink or a like link.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    memory_bytes: int = Field(gt=0)
    peak_flops: dict[str, Positive]
    memory_bandwidth: Positive
    scale_up_bandwidth: NonNegative


def _entry(
    memory_gib: float, bf16: float, fp16: float, fp8: float | None, memory: float, scale_up: float
) -> Accelerator:
    peaks = {"bf16": bf16 * 1e12, "fp16": fp16 * 1e12}
    if fp8 is not None:
        peaks["fp8"] = fp8 * 1e12
    return Accelerator(
        memory_bytes=int(memory_gib * 2**30),
        peak_flops=peaks,
        memory_bandwidth=memory * 1e9,
        scale_up_bandwidth=scale_up * 1e9,
    )


# Vendor data sheets: memory GiB, dense TFLOP/s bf16, fp16, fp8, memory GB/s, scale-up GB/s one way.
CATALOG: dict[str, Accelerator] = {
    "V100": _entry(32, 125.0, 125.0, None, 900, 150),
    "A100-40G": _entry(40, 312.0, 312.0, None, 1555, 300),
    "A100-80G": _entry(80, 312.0, 312.0, None, 2039, 300),
    "A800-80G": _entry(80, 312.0, 312.0, None, 2039, 200),
    "H100-SXM": _entry(80, 989.4, 989.4, 1978.9, 3350, 450),
    "H100-PCIe": _entry(80, 756.0, 756.0, 1513.0, 2000, 300),
    "H800": _entry(80, 989.4, 989.4, 1978.9, 3350, 200),
    "H200": _entry(141, 989.4, 989.4, 1978.9, 4800, 450),
    "B200": _entry(180, 2250.0, 2250.0, 4500.0, 7700, 900),
    "GB200": _entry(186, 2500.0, 2500.0, 5000.0, 8000, 900),
    "MI300X": _entry(192, 1307.4, 1307.4, 2614.9, 5300, 448),
    "Gaudi2": _entry(96, 432.0, 432.0, 865.0, 2450, 262.5),
    "Gaudi3": _entry(128, 1835.0, 1835.0, 1835.0, 3700, 525),
    "Ascend-910B": _entry(64, 376.0, 376.0, None, 1600, 196),
}
