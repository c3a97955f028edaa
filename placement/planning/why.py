"""Why one strategy is slower than another, in words."""

from __future__ import annotations

from ..cost import StepEstimate
from ..drawing.svg import bytes_text
from ..workload import Workload

_NAMES = {
    "compute": "compute",
    "recompute": "recomputation",
    "launch": "launching kernels",
    "tensor_parallel": "tensor-parallel communication",
    "context_parallel": "context-parallel communication",
    "expert_parallel": "expert communication",
    "pipeline_transfer": "sends between stages",
    "bubble": "pipeline bubble",
    "data_parallel": "gradients and parameters",
    "optimizer": "optimizer",
}
_MOST_PARTS = 3
_SHARE = 0.15
"""Parts below this share of the largest difference are not worth a word."""


def why_slower(other: StepEstimate, best: StepEstimate) -> str:
    """Which parts of a step take more time than the best one's, largest first, and which less."""
    more = {name: other.breakdown[name] - best.breakdown[name] for name in other.breakdown}
    largest = max(map(abs, more.values()), default=0.0)
    told = sorted(
        (name for name in more if largest and abs(more[name]) >= _SHARE * largest),
        key=lambda name: -more[name],
    )
    if not told or other.step_s <= best.step_s:
        return "as fast" if other.step_s <= best.step_s else "slower by rounding"
    kept = [name for name in told if more[name] > 0][:_MOST_PARTS]
    less = [name for name in reversed(told) if more[name] < 0][: max(1, _MOST_PARTS - len(kept))]
    parts = [f"{part_name(name)} {_signed(more[name])}" for name in (*kept, *less)]
    return ", ".join(parts)


def seconds_text(seconds: float) -> str:
    """Seconds with four digits, so that numbers below each other compare."""
    return f"{seconds:,.0f} s" if seconds >= 1000 else f"{seconds:#.4g} s"


def part_name(name: str) -> str:
    """A part of the breakdown in words."""
    return _NAMES.get(name, name.replace("_", " "))


def memory_text(found: StepEstimate, share: float = 1.0) -> str:
    """What a rank that does not fit holds, and how much too much that is.

    share: of a device's memory, what it may need.
    """
    parts = sorted(found.memory.items(), key=lambda item: -item[1])[:_MOST_PARTS]
    held = ", ".join(f"{name} {bytes_text(size)}" for name, size in parts)
    room = found.memory_limit_bytes * share
    of = "" if share == 1 else f"{share:.0%} of "
    return (
        f"{bytes_text(found.memory_bytes)} on {of}{bytes_text(found.memory_limit_bytes)}, "
        f"{bytes_text(found.memory_bytes - room)} too much ({held})"
    )


def strategy_text(workload: Workload) -> str:
    """A strategy in one line: degrees above 1, then what else it does."""
    split = workload.parallelism
    degrees = [
        f"{name} {getattr(split, name)}"
        for name in ("tp", "cp", "pp", "dp", "ep")
        if getattr(split, name) > 1
    ]
    if split.ep > 1 and split.expert_tp != split.tp:
        degrees.append(f"etp {split.expert_tp}")
    words = [" x ".join(degrees[:4]) if len(degrees) <= 4 else " x ".join(degrees)]
    if split.virtual_pp > 1:
        words.append(f"{split.virtual_pp} virtual stages")
    if split.pipeline_schedule == "zero-bubble":
        words.append("zero-bubble")
    if split.stage_layers is not None:
        words.append("uneven stages")
    if split.zero:
        words.append(f"ZeRO-{split.zero}" + (f" in groups of {split.shard}" if split.shard else ""))
    if split.zero == 3 and not split.reshard_parameters:
        words.append("parameters kept over the step")
    words.append(f"micro-batch {workload.micro_batch}")
    if workload.recompute != "none":
        words.append(f"{workload.recompute} recomputation")
    if split.tp > 1 and not split.sequence_parallel:
        words.append("no sequence parallelism")
    if split.cp > 1 and split.context_form == "all-to-all":
        words.append("context by all-to-all")
    return ", ".join(word for word in words if word)


def _signed(seconds: float) -> str:
    return f"{'+' if seconds >= 0 else '−'}{abs(seconds):.3g} s"
