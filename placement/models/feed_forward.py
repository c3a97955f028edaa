"""The position-wise half of a layer: a feed-forward network, or a mixture of experts."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from ..errors import InvalidInput, Problem
from ..explained import Explained
from .sizes import Count
from .work import MatMul, share


class FeedForward(Explained):
    """Two matrices around an activation, or three with a gate; `ffn` elements between them."""

    kind: Literal["dense"] = "dense"
    hidden: Count
    ffn: Count
    gated: bool
    bias: bool = False

    @property
    def tensor_splits(self) -> tuple[tuple[str, int], ...]:
        """What tensor parallelism must divide, by name."""
        return (("ffn", self.ffn),)

    @property
    def inputs(self) -> int:
        """Matrices before the activation."""
        return 2 if self.gated else 1

    def matmuls(self, tp: int = 1, ep: int = 1, expert_tp: int | None = None) -> tuple[MatMul, ...]:
        """The matrices on one of `tp` ranks; the gate's is one with the first."""
        ffn = share(self.ffn, tp)
        return (
            MatMul("up", self.hidden, self.inputs * ffn, "feed-forward input", "columns"),
            MatMul("down", ffn, self.hidden, "activation", "rows"),
        )

    def dense_parameters(self, tp: int = 1) -> int:
        """Parameters on one of `tp` ranks."""
        ffn = share(self.ffn, tp)
        biases = self.inputs * ffn + self.hidden if self.bias else 0
        return (self.inputs + 1) * self.hidden * ffn + biases

    def expert_parameters(self, tp: int = 1, ep: int = 1) -> int:
        """Parameters of experts: none."""
        return 0

    @property
    def idle_parameters(self) -> int:
        """Parameters that a token does not use: none."""
        return 0


class Mixture(Explained):
    """A mixture of experts: a router sends each token to `experts_per_token` of `experts`.

    shared: a network that every token passes besides, with a gate of its own when shared_gate is
    on. router_bias: a value an expert added to the router's scores. An expert narrower than
    `hidden` works on a compressed token (a matrix before and one after the experts).
    """

    kind: Literal["mixture"] = "mixture"
    hidden: Count
    experts: Count
    experts_per_token: Count
    expert: FeedForward
    shared: FeedForward | None = None
    shared_gate: bool = False
    router_bias: bool = False

    @model_validator(mode="after")
    def _within_the_experts(self) -> Self:
        if self.experts_per_token > self.experts:
            found = f"{self.experts_per_token} experts a token of {self.experts}"
            fault = Problem("experts_per_token", found, f"give 1 to {self.experts}")
            raise InvalidInput("Mixture", [fault])
        return self

    @property
    def tensor_splits(self) -> tuple[tuple[str, int], ...]:
        """What tensor parallelism must divide, by name; the experts' widths among it."""
        found = (("expert ffn", self.expert.ffn),)
        return found if self.shared is None else (*found, ("shared expert ffn", self.shared.ffn))

    @property
    def latent(self) -> bool:
        """Whether tokens are compressed for the experts."""
        return self.expert.hidden != self.hidden

    def matmuls(self, tp: int = 1, ep: int = 1, expert_tp: int | None = None) -> tuple[MatMul, ...]:
        """The matrices on one of `tp` x `ep` ranks, tokens spread evenly over the experts.

        expert_tp: ranks that divide one expert; `tp` by default.
        """
        on_rank = share(self.experts, ep)
        rows = self.experts_per_token * ep / self.experts
        found = [MatMul("router", self.hidden, self.experts, "feed-forward input")]
        width = self.expert.hidden
        if self.latent:
            found.append(MatMul("latent_down", self.hidden, width, "feed-forward input"))
            found.append(MatMul("latent_up", width, self.hidden, "expert sum"))
        # Dispatched copies of the tokens are tensors of their own.
        found += [
            MatMul(
                f"expert_{part.name}",
                part.k,
                part.n,
                "expert input" if part.name == "up" else "expert activation",
                part.split,
                rows=rows,
                count=on_rank,
                expert=True,
            )
            for part in self.expert.matmuls(tp if expert_tp is None else expert_tp)
        ]
        if self.shared is not None:
            found += [
                MatMul(
                    f"shared_{part.name}",
                    part.k,
                    part.n,
                    part.reads if part.name == "up" else "shared activation",
                    part.split,
                )
                for part in self.shared.matmuls(tp)
            ]
        if self.shared_gate:
            found.append(MatMul("shared_gate", self.hidden, 1, "feed-forward input"))
        return tuple(found)

    def dense_parameters(self, tp: int = 1) -> int:
        """Parameters on one of `tp` ranks that are not divided over expert-parallel ranks."""
        count = self.hidden * self.experts + (self.experts if self.router_bias else 0)
        if self.latent:
            count += 2 * self.hidden * self.expert.hidden
        if self.shared is not None:
            count += self.shared.dense_parameters(tp)
        return count + (self.hidden if self.shared_gate else 0)

    def expert_parameters(self, tp: int = 1, ep: int = 1) -> int:
        """Parameters of the experts on one of `tp` x `ep` ranks."""
        return share(self.experts, ep) * self.expert.dense_parameters(tp)

    @property
    def idle_parameters(self) -> int:
        """Parameters that a token does not use."""
        return (self.experts - self.experts_per_token) * self.expert.dense_parameters()
