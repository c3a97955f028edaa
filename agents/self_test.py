"""A node's test of itself before ranks start: it computes something known, and uses its disk.

Run as a process of its own, so that a device or a disk that hangs takes nothing else along:
`self_test FOLDER [DEVICE...]` prints one JSON object. Without devices it needs the standard library
alone; with them torch, where that is installed.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

DISK_BYTES = 1 << 20
_SIZE = 40
_DEVICE_SIZE = 2048
_VALUES = 1000


class Wrong(Exception):
    """A result is not what it must be."""


def main(arguments: list[str]) -> None:
    """Test, and print what was found: {"wrong": "", "compute_s": ..., "disk_s": ...}."""
    folder, *devices = arguments
    found: dict[str, Any] = {"wrong": ""}
    try:
        found["compute_s"] = _timed(compute)
        found["disk_s"] = _timed(lambda: use_disk(Path(folder)))
        if devices:
            found["device_s"] = _timed(lambda: compute_on([int(device) for device in devices]))
    except Wrong as error:
        found["wrong"] = str(error)
    except OSError as error:
        found["wrong"] = f"its disk fails: {error}"
    except RuntimeError as error:  # torch's, for anything that goes wrong on a device
        found["wrong"] = f"its devices fail: {str(error).splitlines()[0]}"
    sys.stdout.write(json.dumps(found) + "\n")


def _timed(work: Any) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def compute() -> None:
    """Multiply two matrices of whole numbers and check the product. Raises Wrong.

    The check is Freivalds': A(Bx) = (AB)x for a random x (Information Processing 77, 1977).
    """
    chance = random.Random(_SIZE)
    left, right = (_random_matrix(chance) for _ in range(2))
    columns = list(zip(*right, strict=True))
    product = [[sum(map(_times, row, column)) for column in columns] for row in left]
    check = [chance.randrange(_VALUES) for _ in range(_SIZE)]
    if _applied(product, check) != _applied(left, _applied(right, check)):
        raise Wrong("its processor computes a wrong product of two matrices")


def _random_matrix(chance: random.Random) -> list[list[int]]:
    return [[chance.randrange(_VALUES) for _ in range(_SIZE)] for _ in range(_SIZE)]


def _times(one: int, other: int) -> int:
    return one * other


def _applied(matrix: list[list[int]], vector: list[int]) -> list[int]:
    return [sum(map(_times, row, vector)) for row in matrix]


def use_disk(folder: Path) -> None:
    """Write to the node's disk for good and read it again. Raises Wrong, OSError."""
    path = folder / f".self-test-{os.getpid()}"
    data = random.Random(os.getpid()).randbytes(DISK_BYTES)
    try:
        with path.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        read = path.read_bytes()
    finally:
        path.unlink(missing_ok=True)
    if hashlib.sha256(read).digest() != hashlib.sha256(data).digest():
        raise Wrong(f"its disk at {folder} gives back other bytes than were written")


def compute_on(devices: list[int]) -> None:
    """Multiply matrices of small whole numbers on each device, exactly. Raises Wrong.

    Rows of 2,048 products of numbers below 8 stay below 2^17, which float32 holds exactly, and so
    does TF32 with its factors.
    """
    try:
        import torch
    except ImportError:
        return
    for device in devices:
        if device >= torch.cuda.device_count():
            continue
        where = torch.device("cuda", device)
        values = torch.arange(_DEVICE_SIZE, device=where)
        left = (values[:, None] * 3 + values[None, :]) % 8
        right = (values[:, None] + values[None, :] * 5) % 8
        product = (left.float() @ right.float()).double()
        check = (values * 7 % 11).double()
        if not torch.equal(product @ check, left.double() @ (right.double() @ check)):
            raise Wrong(f"device {device} computes a wrong product of two matrices")


if __name__ == "__main__":
    main(sys.argv[1:])
