"""From the names that vendors and buses use for a device to those of the accelerator catalog."""

from __future__ import annotations

import re

# Product names as the drivers give them, most particular first, in the names of the catalog.
_KINDS: tuple[tuple[str, str], ...] = (
    (r"\bGB200\b", "GB200"),
    (r"\bB200\b", "B200"),
    (r"\bH200\b", "H200"),
    (r"\bH800\b", "H800"),
    (r"\bH100\b.*\bPCIe\b", "H100-PCIe"),
    (r"\bH100\b.*\bHBM3\b", "H100-SXM"),
    (r"\bA800\b", "A800-80G"),
    (r"\bA100\b.*80GB", "A100-80G"),
    (r"\bA100\b.*40GB", "A100-40G"),
    (r"\bV100\b.*32GB", "V100"),
    (r"\bMI300X\b", "MI300X"),
)
# Devices on the PCI bus by vendor and device id (the PCI ID repository).
_PCI: dict[tuple[int, int], str] = {
    (0x10DE, 0x1DB5): "V100",
    (0x10DE, 0x1DB6): "V100",
    (0x10DE, 0x1DB8): "V100",
    (0x10DE, 0x20B0): "A100-40G",
    (0x10DE, 0x20B2): "A100-80G",
    (0x10DE, 0x20B5): "A100-80G",
    (0x10DE, 0x20BD): "A800-80G",
    (0x10DE, 0x20F1): "A100-40G",
    (0x10DE, 0x20F3): "A800-80G",
    (0x10DE, 0x2324): "H800",
    (0x10DE, 0x2330): "H100-SXM",
    (0x10DE, 0x2331): "H100-PCIe",
    (0x10DE, 0x2335): "H200",
    (0x10DE, 0x2901): "B200",
    (0x10DE, 0x2941): "GB200",
    (0x1002, 0x66A0): "MI60",
    (0x1002, 0x66A1): "MI50",
    (0x1002, 0x7388): "MI100",
    (0x1002, 0x738C): "MI100",
    (0x1002, 0x7408): "MI250X",
    (0x1002, 0x740C): "MI250X",
    (0x1002, 0x740F): "MI210",
    (0x1002, 0x74A0): "MI300A",
    (0x1002, 0x74A1): "MI300X",
    (0x1002, 0x74A5): "MI325X",
    (0x1DA3, 0x1000): "Gaudi",
    (0x1DA3, 0x1020): "Gaudi2",
    (0x1DA3, 0x1060): "Gaudi3",
}


def kind_of_product(product: str) -> str:
    """The catalog's name for a product name; the product name itself when it is not in there."""
    for pattern, kind in _KINDS:
        if re.search(pattern, product):
            return kind
    return re.sub(r"[^A-Za-z0-9._-]+", "-", product.removeprefix("NVIDIA ")).strip("-") or "unknown"


def kind_of_pci(vendor: int | None, device: int | None) -> str | None:
    """The name for a PCI function's vendor and device id; None where it is not known."""
    return None if vendor is None or device is None else _PCI.get((vendor, device))
