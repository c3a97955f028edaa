"""What tiers are called that a file does not name."""

from __future__ import annotations

_KNOWN = ("leaf", "pod", "zone")
NVLINK = "nvlink"
"""The tier of nodes whose devices NVLink or a like link joins."""


def tier_names(count: int) -> tuple[str, ...]:
    """Names for so many tiers below the spine, nearest first."""
    return tuple(_KNOWN[k] if k < len(_KNOWN) else f"level-{k + 1}" for k in range(count))
