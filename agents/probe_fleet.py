"""Probing with the agents of a Ray cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import ray
from ray.exceptions import GetTimeoutError, RayError

from ..placement.inference.measurements import Pair
from .fleet import NodeAgent
from .netprobe import Opening, ProbeFailed
from .probe_end import PairProbe, ProbeOrder
from .prober import Answers

Answer = TypeVar("Answer")


class FleetEnds:
    """The agents as ends of probes; see `prober.Ends`."""

    def __init__(self, agents: Mapping[str, NodeAgent]) -> None:
        self._agents = agents

    def listen(self, orders: Mapping[Pair, ProbeOrder], timeout_s: float) -> Answers[Opening]:
        """See `Ends.listen`."""
        return _gathered(
            {
                (a, b): self._agents[b].actor.probe_listen.remote(order)
                for (a, b), order in orders.items()
            },
            timeout_s,
        )

    def connect(
        self, orders: Mapping[Pair, tuple[Opening, ProbeOrder]], timeout_s: float
    ) -> Answers[PairProbe]:
        """See `Ends.connect`."""
        return _gathered(
            {
                (a, b): self._agents[a].actor.probe_connect.remote(opening, order)
                for (a, b), (opening, order) in orders.items()
            },
            timeout_s,
        )


def _gathered(refs: Mapping[Pair, Any], timeout_s: float) -> Answers[Any]:
    """The results that came in time, and why others did not."""
    if refs:
        ray.wait(list(refs.values()), num_returns=len(refs), timeout=timeout_s)
    answers = Answers[Any]()
    for pair, ref in refs.items():
        try:
            answers.found[pair] = ray.get(ref, timeout=0.1)
        except GetTimeoutError:
            answers.fail(pair, f"no answer within {timeout_s:g} s", unanswered=True)
        except (RayError, ProbeFailed, OSError) as error:
            cause = getattr(error, "cause", None) or error
            answers.fail(pair, str(cause), not isinstance(cause, ProbeFailed | OSError))
    return answers
