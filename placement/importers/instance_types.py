"""What machines of the clouds hold, by the names of their types."""

from __future__ import annotations

from .facts import Machine

# Device kind (of the accelerator catalog) and count, as the clouds list their machine types.
_TYPES: dict[str, tuple[str, int]] = {
    "p3.16xlarge": ("V100", 8),
    "p3dn.24xlarge": ("V100", 8),
    "p4d.24xlarge": ("A100-40G", 8),
    "p4de.24xlarge": ("A100-80G", 8),
    "p5.48xlarge": ("H100-SXM", 8),
    "p5e.48xlarge": ("H200", 8),
    "p5en.48xlarge": ("H200", 8),
    "p6-b200.48xlarge": ("B200", 8),
    "p6e-gb200.36xlarge": ("GB200", 4),
    "a2-highgpu-8g": ("A100-40G", 8),
    "a2-megagpu-16g": ("A100-40G", 16),
    "a2-ultragpu-8g": ("A100-80G", 8),
    "a3-highgpu-8g": ("H100-SXM", 8),
    "a3-megagpu-8g": ("H100-SXM", 8),
    "a3-ultragpu-8g": ("H200", 8),
    "a4-highgpu-8g": ("B200", 8),
    "a4x-highgpu-4g": ("GB200", 4),
    "standard_nd40rs_v2": ("V100", 8),
    "standard_nd96asr_v4": ("A100-40G", 8),
    "standard_nd96amsr_a100_v4": ("A100-80G", 8),
    "standard_nd96isr_h100_v5": ("H100-SXM", 8),
    "standard_nd96isr_h200_v5": ("H200", 8),
    "standard_nd128isr_ndr_gb200_v6": ("GB200", 4),
    "standard_nd96isr_mi300x_v5": ("MI300X", 8),
    "bm.gpu4.8": ("A100-40G", 8),
    "bm.gpu.a100-v2.8": ("A100-80G", 8),
    "bm.gpu.h100.8": ("H100-SXM", 8),
    "bm.gpu.h200.8": ("H200", 8),
    "bm.gpu.b200.8": ("B200", 8),
    "bm.gpu.gb200.4": ("GB200", 4),
    "bm.gpu.mi300x.8": ("MI300X", 8),
}
ULTRASERVER_PREFIXES = ("p6e-",)
"""Types of which several share one NVLink domain, named by their capacity block."""


def machine_of_type(name: str) -> Machine | None:
    """What a machine of that type holds; None for a type that is not known here."""
    known = _TYPES.get(name.strip().lower())
    return Machine(accelerator=known[0], devices=known[1]) if known else None
