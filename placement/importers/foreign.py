"""A foreign file given where a cluster file is expected."""

from __future__ import annotations

import os
import warnings

from ..cluster import Cluster
from .clusters import assembled
from .registry import recognised
from .source import Source


class ImportedFileWarning(UserWarning):
    """What a file that stands for a cluster leaves open, and what was assumed instead."""


def foreign_cluster(path: str | os.PathLike[str]) -> Cluster | None:
    """The cluster that a file of another format makes; None where no importer knows it.

    Gives an ImportedFileWarning for each thing that was assumed. Raises InvalidInput.
    """
    source = Source.load(path)
    importer = recognised(source)
    if importer is None:
        return None
    imported = assembled({source.name: importer.read(source)})
    for warning in imported.warnings:
        warnings.warn(f"{importer.title}: {warning}", ImportedFileWarning, stacklevel=3)
    return imported.cluster
