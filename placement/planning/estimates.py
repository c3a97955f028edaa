"""What planning asks of an estimator, whether stages are on one kind of accelerator or several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..cluster import Cluster
from ..cost import StepEstimate
from ..evaluate import Device
from ..workload import Workload


class Estimate(Protocol):
    """Predicts steps on a cluster: on given devices, or on free ones in an order of its own."""

    cluster: Cluster

    def __call__(
        self, workload: Workload, devices: Sequence[Device] | None = None, /
    ) -> StepEstimate: ...
