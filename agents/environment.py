"""The environment that ranks start from, before the launch adds its own variables."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

# What Ray sets in its workers for itself; a rank is not one.
_RAY_VARIABLES = re.compile(r"_*RAY_.*|__RAYLET.*|SPT_NOENV")
_WORKER_VARIABLES = frozenset(
    {
        "CUDA_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "HABANA_VISIBLE_MODULES",
        "ASCEND_RT_VISIBLE_DEVICES",
        "ONEAPI_DEVICE_SELECTOR",
        "TPU_VISIBLE_CHIPS",
        "NEURON_RT_VISIBLE_CORES",
        "OMP_NUM_THREADS",
        "PYTHONBREAKPOINT",
        # Of the shell that started the raylet; ranks have a working directory of their own.
        "PWD",
        "OLDPWD",
    }
)


def rank_environment(worker: Mapping[str, str], interpreter: str) -> dict[str, str]:
    """What ranks inherit from the agent's environment: all but what Ray set for its worker.

    Ray's tokens stay behind with it. The interpreter's folder leads PATH, so that `python` in a
    job's command is the Python that Railweave runs on.
    """
    kept = {
        name: value
        for name, value in worker.items()
        if not _RAY_VARIABLES.fullmatch(name) and name not in _WORKER_VARIABLES
    }
    path = kept.get("PATH", os.defpath).split(os.pathsep)
    folder = os.path.dirname(interpreter)
    kept["PATH"] = os.pathsep.join([folder, *(part for part in path if part != folder)])
    return kept
