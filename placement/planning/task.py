"""What is planned: a model, its batch, and how its program trains, before it is split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..models import Model
from ..workload import Parallelism, Recompute, Workload


@dataclass(frozen=True)
class Task:
    """A training step to be split.

    common: fields of `Workload` that every strategy has alike, such as the precision.
    """

    model: Model
    global_batch: int
    sequence: int
    common: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rank_order(self) -> str:
        """Which dimension's ranks are next to each other."""
        return str(self.common.get("rank_order", Workload.model_fields["rank_order"].default))

    def workload(
        self,
        split: Parallelism,
        micro_batch: int,
        recompute: Recompute,
        global_batch: int | None = None,
    ) -> Workload:
        """The task under a split. Rules are not checked here: see `first_broken`."""
        return Workload.model_construct(
            model=self.model,
            parallelism=split,
            global_batch=global_batch or self.global_batch,
            micro_batch=micro_batch,
            sequence=self.sequence,
            recompute=recompute,
            **self.common,
        )
