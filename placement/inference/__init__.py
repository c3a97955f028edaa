"""What the network is like, from what probes between its nodes measured."""

from .measurements import Measurement, ProbeKind, ProbeRound

__all__ = ["Measurement", "ProbeKind", "ProbeRound"]
