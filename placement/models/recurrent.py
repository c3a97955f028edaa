"""Mixers whose cost is linear in the sequence: gated delta-net, Mamba-2 and Mamba."""

from __future__ import annotations

from typing import Literal

from ..explained import Explained
from .sizes import Count
from .work import MatMul, ScanCore, share

# Tokens a chunk of the published kernels of the gated delta rule.
DELTA_CHUNK = 64


class DeltaNet(Explained):
    """Gated delta-net, as in Qwen3-Next: a delta-rule state for every value head.

    conv_kernel: taps of the depth-wise convolution over queries, keys and values.
    Source: Yang, Kautz & Hatamizadeh 2025.
    """

    kind: Literal["delta-net"] = "delta-net"
    hidden: Count
    key_heads: Count
    value_heads: Count
    key_head_dim: Count
    value_head_dim: Count
    conv_kernel: Count = 4

    @property
    def tensor_splits(self) -> tuple[tuple[str, int], ...]:
        """What tensor parallelism must divide, by name."""
        return (("linear key heads", self.key_heads), ("linear value heads", self.value_heads))

    def core(self, tp: int = 1) -> ScanCore:
        """The recurrence on one of `tp` ranks."""
        keys, values = share(self.key_heads, tp), share(self.value_heads, tp)
        return ScanCore(
            heads=values,
            groups=keys,
            key_dim=self.key_head_dim,
            value_dim=self.value_head_dim,
            chunk=DELTA_CHUNK,
            conv_channels=2 * keys * self.key_head_dim + values * self.value_head_dim,
            conv_kernel=self.conv_kernel,
            rule="delta",
        )

    def matmuls(self, tp: int = 1) -> tuple[MatMul, ...]:
        """The projections on one of `tp` ranks: in with gate, decay and write strength, and out."""
        core = self.core(tp)
        values = core.heads * self.value_head_dim
        inwards = core.conv_channels + values + 2 * core.heads
        return (
            MatMul("input", self.hidden, inwards, "mixer input", "columns"),
            MatMul("output", values, self.hidden, "mixer output", "rows"),
        )

    def other_parameters(self, tp: int = 1) -> int:
        """Parameters beside the matrices: convolution, decay and its bias, the norm of a head."""
        core = self.core(tp)
        return core.conv_channels * self.conv_kernel + 2 * core.heads + self.value_head_dim


class KimiDelta(Explained):
    """Kimi delta attention: a delta rule whose decay is told for every channel of a key.

    The decay comes from a compressed input of head_dim elements, and so does the output's gate
    unless full_gate is on. Source: Kimi Team 2025 (Kimi Linear).
    """

    kind: Literal["kimi-delta"] = "kimi-delta"
    hidden: Count
    heads: Count
    head_dim: Count
    conv_kernel: Count = 4
    full_gate: bool = False

    @property
    def tensor_splits(self) -> tuple[tuple[str, int], ...]:
        """What tensor parallelism must divide, by name."""
        return (("linear heads", self.heads),)

    def core(self, tp: int = 1) -> ScanCore:
        """The recurrence on one of `tp` ranks."""
        heads = share(self.heads, tp)
        return ScanCore(
            heads=heads,
            groups=heads,
            key_dim=self.head_dim,
            value_dim=self.head_dim,
            chunk=DELTA_CHUNK,
            conv_channels=3 * heads * self.head_dim,
            conv_kernel=self.conv_kernel,
            rule="delta",
        )

    def matmuls(self, tp: int = 1) -> tuple[MatMul, ...]:
        """The projections on one of `tp` ranks; the compressions are whole on every rank."""
        heads = share(self.heads, tp)
        width = heads * self.head_dim
        inwards = (4 if self.full_gate else 3) * width + heads
        found = [MatMul("input", self.hidden, inwards, "mixer input", "columns")]
        for part in ("decay",) if self.full_gate else ("decay", "gate"):
            found.append(MatMul(f"{part}_down", self.hidden, self.head_dim, "mixer input"))
            found.append(MatMul(f"{part}_up", self.head_dim, width, f"{part} latent", "columns"))
        return (*found, MatMul("output", width, self.hidden, "mixer output", "rows"))

    def other_parameters(self, tp: int = 1) -> int:
        """Parameters beside the matrices: convolutions, decay and its bias, the norm of a head."""
        core = self.core(tp)
        taps = core.conv_channels * self.conv_kernel
        return taps + core.heads * (self.head_dim + 1) + self.head_dim


class Mamba2(Explained):
    """Mamba-2: `heads` of `head_dim`, each with a state of `state` vectors; groups share B and C.

    Source: Dao & Gu 2024.
    """

    kind: Literal["mamba-2"] = "mamba-2"
    hidden: Count
    heads: Count
    head_dim: Count
    state: Count
    groups: Count = 1
    conv_kernel: Count = 4
    chunk: Count = 256
    bias: bool = False
    conv_bias: bool = True
    norm: bool = True

    @property
    def tensor_splits(self) -> tuple[tuple[str, int], ...]:
        """What tensor parallelism must divide, by name."""
        return (("mamba heads", self.heads),)

    def core(self, tp: int = 1) -> ScanCore:
        """The recurrence on one of `tp` ranks; each has at least one group."""
        heads, groups = share(self.heads, tp), share(self.groups, tp)
        return ScanCore(
            heads=heads,
            groups=groups,
            key_dim=self.state,
            value_dim=self.head_dim,
            chunk=self.chunk,
            conv_channels=heads * self.head_dim + 2 * groups * self.state,
            conv_kernel=self.conv_kernel,
            rule="decay",
        )

    def matmuls(self, tp: int = 1) -> tuple[MatMul, ...]:
        """The projections on one of `tp` ranks."""
        core = self.core(tp)
        inner = core.heads * self.head_dim
        inwards = inner + core.conv_channels + core.heads
        return (
            MatMul("input", self.hidden, inwards, "mixer input", "columns"),
            MatMul("output", inner, self.hidden, "mixer output", "rows"),
        )

    def other_parameters(self, tp: int = 1) -> int:
        """Parameters beside the matrices: convolution, decay, step and skip of a head, norm."""
        core = self.core(tp)
        inner = core.heads * self.head_dim
        count = core.conv_channels * (self.conv_kernel + self.conv_bias) + 3 * core.heads
        if self.norm:
            count += inner
        if self.bias:
            count += inner + core.conv_channels + core.heads + self.hidden
        return count


class Mamba(Explained):
    """Mamba (the first): `inner` channels with a diagonal state of `state` elements each.

    dt_rank: width of the compressed step size. dt_norms: norms of step, B and C, as in Jamba.
    Source: Gu & Dao 2023.
    """

    kind: Literal["mamba"] = "mamba"
    hidden: Count
    inner: Count
    state: Count
    dt_rank: Count
    conv_kernel: Count = 4
    bias: bool = False
    conv_bias: bool = True
    dt_norms: bool = False

    @property
    def tensor_splits(self) -> tuple[tuple[str, int], ...]:
        """What tensor parallelism must divide, by name."""
        return (("mamba channels", self.inner),)

    def core(self, tp: int = 1) -> ScanCore:
        """The recurrence on one of `tp` ranks."""
        inner = share(self.inner, tp)
        return ScanCore(
            heads=1,
            groups=1,
            key_dim=self.state,
            value_dim=inner,
            chunk=1,
            conv_channels=inner,
            conv_kernel=self.conv_kernel,
            rule="diagonal",
        )

    def matmuls(self, tp: int = 1) -> tuple[MatMul, ...]:
        """The projections on one of `tp` ranks."""
        inner = share(self.inner, tp)
        selected = self.dt_rank + 2 * self.state
        return (
            MatMul("input", self.hidden, 2 * inner, "mixer input", "columns"),
            MatMul("selection", inner, selected, "convolved input", "rows"),
            MatMul("step", self.dt_rank, inner, "step latent", "columns"),
            MatMul("output", inner, self.hidden, "mixer output", "rows"),
        )

    def other_parameters(self, tp: int = 1) -> int:
        """Parameters beside the matrices: convolution, state decay, step bias, skip, norms."""
        inner = share(self.inner, tp)
        count = inner * (self.conv_kernel + self.conv_bias) + inner * (self.state + 2)
        if self.bias:
            count += 2 * inner + self.hidden
        if self.dt_norms:
            count += self.dt_rank + 2 * self.state
        return count
