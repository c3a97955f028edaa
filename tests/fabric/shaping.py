"""Rates of interfaces, by token buckets."""

from __future__ import annotations

from .namespaces import tc

_BURST_S = 0.005
_QUEUE_BYTES = 4 * 2**20


def bucket(verb: str, device: str, mbit: float, mtu_bytes: int) -> str:
    """The line of `tc` that gives a device its rate; `verb` is add or change.

    The burst is a few milliseconds' worth but never below two frames, so that a transfer of a
    tenth of a second shows the rate and not the burst. The queue holds the windows
    (`fabric.WINDOW_BYTES`) of all connections that ever share a port: like the lossless Ethernet of
    training clusters, it makes senders wait and drops nothing. With less, one step in five took
    a quarter longer than its neighbours, for what TCP does after a loss.
    """
    burst_bytes = max(2 * (mtu_bytes + 64), round(mbit * 1e6 / 8 * _BURST_S))
    return (
        f"qdisc {verb} dev {device} root tbf rate {round(mbit * 1e6)}bit burst {burst_bytes} "
        f"limit {_QUEUE_BYTES + burst_bytes}"
    )


def set_rate(namespace: str, device: str, mbit: float, mtu_bytes: int) -> None:
    """Change a shaped device's rate."""
    tc([bucket("change", device, mbit, mtu_bytes)], namespace)
