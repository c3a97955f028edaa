"""`nvidia-smi nvlink -s`: the rate of each NVLink, and those that are down."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..accelerator_names import kind_of_product
from ..errors import Problem
from .facts import ANY_NODE, Facts, Machine
from .registry import Importer
from .source import Source

_GPU = re.compile(r"^\s*GPU\s+(\d{1,4}):(.*)$")
_LINK = re.compile(r"^\s*Link\s+(\d{1,3}):\s*(?:(\d{1,6}(?:\.\d{1,6})?)\s*GB/s|<?(inactive)>?)\s*$")
_LEFT_OUT = re.compile(r"^\s*(\.{2,}|…+|\[\.{2,}\])\s*$")
_CLAIM = re.compile(r"^\s*Link\s+\d+:\s*(?:[\d.]+\s*GB/s|<?inactive)", re.MULTILINE)


@dataclass
class _Gpu:
    """A GPU's links: bytes/s by number, None where inactive."""

    number: int
    line: int
    product: str
    links: dict[int, float | None] = field(default_factory=dict)

    @property
    def inactive(self) -> list[int]:
        return [link for link, rate in self.links.items() if rate is None]

    @property
    def up(self) -> list[int]:
        return [link for link, rate in self.links.items() if rate is not None]


def _certainty(source: Source) -> float:
    return 0.9 if _CLAIM.search(source.text) and re.search(r"GPU\s+\d+:", source.text) else 0.0


def _read(source: Source) -> Facts:
    gpus: dict[int, _Gpu] = {}
    warnings: list[str] = []
    gap: int | None = None
    current: _Gpu | None = None
    for number, line in enumerate(source.lines, start=1):
        if match := _GPU.match(line):
            if int(match[1]) in gpus:
                found = f"GPU {int(match[1])} is there twice"
                raise source.refuse(f"line {number}", found, "give each node a file of its own")
            current = gpus[int(match[1])] = _Gpu(int(match[1]), number, _product(match[2]))
        elif match := _LINK.match(line):
            if current is None:
                found = "a link before the first GPU"
                raise source.refuse(f"line {number}", found, "hand in the whole output")
            if int(match[1]) in current.links:
                found = f"link {match[1]} of GPU {current.number} is there twice"
                raise source.refuse(f"line {number}", found, "hand in the output unchanged")
            rate = float(match[2]) * 1e9 if match[2] else 0.0
            current.links[int(match[1])] = rate or None
        elif _LEFT_OUT.match(line):
            gap = gap or number
            current = None
        elif re.match(r"^\s*Link\s+\d+:", line):
            warnings.append(f"line {number}: not understood: {line.strip()[:60]!r}; left out")
    if not any(gpu.links for gpu in gpus.values()):
        found = "no GPU with links"
        raise source.refuse("", found, "hand in the output of nvidia-smi nvlink -s")
    if gap:
        warnings.append(f"line {gap}: part of the output is left out; the other GPUs are unknown")
    held = list(gpus.values())
    whole = gap is None and sorted(gpus) == list(range(len(gpus)))
    degraded = _degraded(held, warnings)
    return Facts(
        "nvidia-smi-nvlink",
        _summary(held, degraded, whole),
        machines={ANY_NODE: _machine(held, degraded, whole)},
        not_alone=None if whole else _incomplete(held),
        warnings=tuple(warnings),
    )


def _product(text: str) -> str:
    return text.partition("(UUID")[0].strip()


def _incomplete(gpus: Sequence[_Gpu]) -> Problem:
    listed = ", ".join(str(gpu.number) for gpu in gpus)
    fix = "hand in the whole output of nvidia-smi nvlink -s, or nvidia-smi topo -m beside it"
    return Problem("", f"only GPU {listed} is listed, so the number of GPUs is unknown", fix)


def _degraded(gpus: Sequence[_Gpu], warnings: list[str]) -> list[_Gpu]:
    """GPUs of which some links are down; where all GPUs have as many up it is the board."""
    partly = [gpu for gpu in gpus if gpu.up and gpu.inactive]
    counts = {len(gpu.up) for gpu in gpus}
    if len(gpus) > 1 and len(partly) == len(gpus) and len(counts) == 1:
        warnings.append(
            f"line {gpus[0].line}: every GPU has {len(partly[0].inactive)} inactive links: "
            "taken for links that the board does not use"
        )
        return []
    fewer = [gpu for gpu in gpus if len(gpu.up) < max(counts) and gpu not in partly]
    return [gpu for gpu in gpus if gpu in partly or gpu in fewer]


def _faults(degraded: Sequence[_Gpu]) -> str:
    return "; ".join(
        f"GPU {gpu.number}: links {', '.join(map(str, gpu.inactive))} inactive"
        if gpu.inactive
        else f"GPU {gpu.number}: {len(gpu.up)} links, fewer than the others"
        for gpu in degraded
    )


def _machine(gpus: Sequence[_Gpu], degraded: Sequence[_Gpu], whole: bool) -> Machine:
    kinds = {kind_of_product(gpu.product) for gpu in gpus if gpu.product}
    rates = [rate for gpu in gpus for rate in gpu.links.values() if rate]
    return Machine(
        accelerator=next(iter(kinds)) if len(kinds) == 1 else None,
        devices=len(gpus) if whole else None,
        nvlink_bytes_per_s=min(rates, default=None),
        faulty=_faults(degraded),
    )


def _summary(gpus: Sequence[_Gpu], degraded: Sequence[_Gpu], whole: bool) -> dict[str, Any]:
    return {
        "gpus": len(gpus) if whole else None,
        "gpus_listed": [gpu.number for gpu in gpus],
        "links": {
            f"GPU{gpu.number}": {
                "product": gpu.product or None,
                "state": "degraded" if gpu in degraded else "up" if gpu.up else "inactive",
                "up": gpu.up,
                "inactive": gpu.inactive,
                "gbyte_per_s": {
                    str(link): rate / 1e9 for link, rate in gpu.links.items() if rate is not None
                },
            }
            for gpu in gpus
        },
        "degraded": [f"GPU{gpu.number}" for gpu in degraded],
        "not_told": ["which GPUs the links join", "network interfaces"]
        + ([] if whole else ["GPUs that are not listed"]),
    }


IMPORTERS: tuple[Importer, ...] = (
    Importer(
        name="nvidia-smi-nvlink",
        title="nvidia-smi nvlink -s",
        produced_by="nvidia-smi nvlink -s",
        certainty=_certainty,
        read=_read,
    ),
)
