"""Agents: what runs on the nodes. `report` is for the training programs that run there."""

from .progress import report

__all__ = ["report"]
