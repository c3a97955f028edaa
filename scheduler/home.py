"""Railweave's own folder of a user, and the embedded cluster that is kept there."""

from __future__ import annotations

import os
from pathlib import Path

from .embedded import EmbeddedCluster

VARIABLE = "RAILWEAVE_HOME"


def home() -> Path:
    """`$RAILWEAVE_HOME`, by default `~/.railweave`."""
    return Path(os.environ.get(VARIABLE) or Path.home() / ".railweave")


def record_path() -> Path:
    """Where the embedded cluster that runs in the background is written down."""
    return home() / "embedded.json"


def background_cluster() -> EmbeddedCluster | None:
    """The embedded cluster that `railweave up --embedded` left running; None when there is none."""
    return EmbeddedCluster.attach(record_path())
