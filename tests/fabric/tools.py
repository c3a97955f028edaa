"""What an emulated fabric needs of a machine, and what of it is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache

from skips import UNABLE_MACHINE

_PROGRAMS = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux"}


@cache
def missing() -> str:
    """What to change before a fabric can be brought up here; empty when nothing is missing."""
    packages = {package for name, package in _PROGRAMS.items() if shutil.which(name) is None}
    if packages:
        return f"a fabric needs programs that are not there: apt-get install {' '.join(packages)}"
    if os.geteuid() != 0:
        return f"{UNABLE_MACHINE}: network namespaces are made by root alone; run as root"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return (
            f"{UNABLE_MACHINE}: no /dev/net/tun; load the kernel module tun, or pass the device in"
        )
    shape = "tc qdisc add dev lo root tbf rate 1mbit burst 20000 latency 10ms"
    tried = subprocess.run(
        ["unshare", "--net", *shape.split()],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode:
        return f"{UNABLE_MACHINE}: no shaped network namespace: {tried.stderr.strip()}"
    return ""
