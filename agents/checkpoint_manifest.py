"""What a checkpoint says of itself: folder and file names, shards, receipts and the manifest.

Every record is sealed: it holds the checksum of its own content, and its bytes must be exactly
what writing that content again gives, so that no changed bit of it goes unseen.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Self

MANIFEST_FORMAT: Final = "railweave.checkpoint/1"
RECEIPT_FORMAT: Final = "railweave.receipt/1"
FENCE_FORMAT: Final = "railweave.fence/1"
HOLD_FORMAT: Final = "railweave.hold/1"
MANIFEST_NAME: Final = "manifest.json"
LAYOUT_NAME: Final = "layout.json"

_FOLDER = re.compile(r"step-(\d{12})\.attempt-(\d{4,9})")
_FENCE = re.compile(r"fence-(\d{4,9})\.json")
_HOLD = re.compile(r"hold-(step-\d{12}\.attempt-\d{4,9})\.[0-9a-f]{16}\.json")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MAX_STEP = 10**12 - 1
_MAX_ATTEMPT = 10**9 - 1


class Damaged(ValueError):
    """A record whose bytes are not what its writer wrote; the message says how that shows."""


class Kind(StrEnum):
    """What the bytes of a shard are."""

    BYTES = "bytes"
    """The caller's own bytes, as they were given."""
    TORCH = "torch"
    """Nested containers of tensors and numbers, written by torch.save."""
    SLICES = "slices"
    """Slices of tensors one after another; any number of ranks can read what they need of them."""


def step_folder(step: int, attempt: int) -> str:
    """Name of the folder of one step written by one attempt; names sort by step, then attempt.

    Raises ValueError when a number is out of range.
    """
    if not 0 <= step <= _MAX_STEP:
        raise ValueError(f"step {step} is out of range: use 0 to {_MAX_STEP}")
    _refuse_attempt(attempt)
    return f"step-{step:012d}.attempt-{attempt:04d}"


def _refuse_attempt(attempt: int) -> None:
    if not 0 <= attempt <= _MAX_ATTEMPT:
        raise ValueError(f"attempt {attempt} is out of range: use 0 to {_MAX_ATTEMPT}")


def parse_step_folder(name: str) -> tuple[int, int] | None:
    """`(step, attempt)` of a folder's name, or None when no checkpoint is ever named so."""
    match = _FOLDER.fullmatch(name)
    if match is None:
        return None
    step, attempt = int(match[1]), int(match[2])
    return (step, attempt) if name == step_folder(step, attempt) else None


def shard_name(rank: int, kind: Kind) -> str:
    """File name of a rank's shard inside its step's folder."""
    return f"shard-{rank:06d}.{kind}"


def receipt_name(rank: int) -> str:
    """File name of the note that a rank's shard is whole."""
    return f"shard-{rank:06d}.json"


def fence_name(attempt: int) -> str:
    """File name of the fence that shuts out every attempt below `attempt`.

    Raises ValueError when it is out of range.
    """
    _refuse_attempt(attempt)
    return f"fence-{attempt:04d}.json"


def parse_fence_name(name: str) -> int | None:
    """The attempt of a fence file's name, or None."""
    match = _FENCE.fullmatch(name)
    if match is None or name != fence_name(int(match[1])):
        return None
    return int(match[1])


def hold_name(folder: str, token: str) -> str:
    """File name of the note that someone reads a folder; `token` is 16 hexadecimal digits."""
    return f"hold-{folder}.{token}.json"


def parse_hold_name(name: str) -> str | None:
    """The folder that a note of that name is about, or None."""
    match = _HOLD.fullmatch(name)
    return match[1] if match is not None and parse_step_folder(match[1]) else None


def _body_sha256(body: dict[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def seal(body: dict[str, Any]) -> bytes:
    """A record as the bytes of its file: JSON with its own checksum in it."""
    whole = {**body, "sha256": _body_sha256(body)}
    return (json.dumps(whole, sort_keys=True, indent=1, allow_nan=False) + "\n").encode()


def unseal(data: bytes, expected_format: str) -> dict[str, Any]:
    """The record in a file's bytes, without its checksum. Raises Damaged."""
    if not data:
        raise Damaged("empty")
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"torn, not JSON after {len(data)} bytes") from error
    if not isinstance(body, dict):
        raise Damaged(f"holds {type(body).__name__}, not an object")
    found = body.pop("sha256", None)
    try:
        intact = found == _body_sha256(body) and seal(body) == data
    except (ValueError, RecursionError):
        intact = False
    if not intact:
        raise Damaged("its content does not match its own checksum")
    if body.get("format") != expected_format:
        raise Damaged(f"format {body.get('format')!r}, not {expected_format!r}")
    return body


def _count(body: dict[str, Any], key: str, least: int = 0) -> int:
    value = body.get(key)
    if type(value) is not int or value < least:
        raise Damaged(f"{key} is {value!r}, not a whole number of at least {least}")
    return value


def _only_keys(body: dict[str, Any], keys: set[str]) -> None:
    if set(body) != keys:
        different = ", ".join(sorted(set(body) ^ keys))
        raise Damaged(f"keys missing or unknown: {different}")


@dataclass(frozen=True)
class Shard:
    """One rank's part of a checkpoint: its kind, size and checksum."""

    rank: int
    kind: Kind
    size_bytes: int
    sha256: str

    @property
    def name(self) -> str:
        """File name inside the step's folder."""
        return shard_name(self.rank, self.kind)

    def to_data(self) -> dict[str, Any]:
        """Plain data as it stands in records."""
        return {
            "rank": self.rank,
            "kind": str(self.kind),
            "size_bytes": self.size_bytes,
            "sha256": self.sha256,
        }

    @classmethod
    def parse(cls, data: Any) -> Self:
        """A shard from plain data. Raises Damaged."""
        if not isinstance(data, dict):
            raise Damaged(f"a shard is {data!r}, not an object")
        _only_keys(data, {"rank", "kind", "size_bytes", "sha256"})
        kind, sha256 = data["kind"], data["sha256"]
        if kind not in list(Kind):
            raise Damaged(f"unknown kind of shard {kind!r}")
        if not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
            raise Damaged(f"checksum {sha256!r} is not 64 hexadecimal digits")
        return cls(_count(data, "rank"), Kind(kind), _count(data, "size_bytes"), sha256)


@dataclass(frozen=True)
class Receipt:
    """A rank's word that its shard of a step is written and synced."""

    step: int
    attempt: int
    world_size: int
    shard: Shard

    def to_bytes(self) -> bytes:
        """The receipt as the bytes of its file."""
        return seal(
            {
                "format": RECEIPT_FORMAT,
                "step": self.step,
                "attempt": self.attempt,
                "world_size": self.world_size,
                "shard": self.shard.to_data(),
            }
        )

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """A receipt from its file's bytes. Raises Damaged."""
        body = unseal(data, RECEIPT_FORMAT)
        _only_keys(body, {"format", "step", "attempt", "world_size", "shard"})
        return cls(
            _count(body, "step"),
            _count(body, "attempt"),
            _count(body, "world_size", 1),
            Shard.parse(body["shard"]),
        )


@dataclass(frozen=True)
class Manifest:
    """A committed checkpoint: one shard a rank, by rank. `committed_s` is wall-clock time."""

    step: int
    attempt: int
    committed_s: float
    shards: tuple[Shard, ...]

    @property
    def world_size(self) -> int:
        """Number of ranks that wrote it."""
        return len(self.shards)

    @property
    def reshardable(self) -> bool:
        """Whether another number of ranks can read it."""
        return all(shard.kind is Kind.SLICES for shard in self.shards)

    @property
    def size_bytes(self) -> int:
        """Bytes of all shards."""
        return sum(shard.size_bytes for shard in self.shards)

    def to_bytes(self) -> bytes:
        """The manifest as the bytes of its file."""
        return seal(
            {
                "format": MANIFEST_FORMAT,
                "step": self.step,
                "attempt": self.attempt,
                "committed_s": self.committed_s,
                "world_size": self.world_size,
                "shards": [shard.to_data() for shard in self.shards],
            }
        )

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """A manifest from its file's bytes. Raises Damaged."""
        body = unseal(data, MANIFEST_FORMAT)
        _only_keys(body, {"format", "step", "attempt", "committed_s", "world_size", "shards"})
        committed_s, listed = body["committed_s"], body["shards"]
        if not isinstance(committed_s, int | float) or isinstance(committed_s, bool):
            raise Damaged(f"committed_s is {committed_s!r}, not a time")
        if not isinstance(listed, list):
            raise Damaged(f"shards is {type(listed).__name__}, not a list")
        shards = tuple(Shard.parse(shard) for shard in listed)
        world_size = _count(body, "world_size", 1)
        if [shard.rank for shard in shards] != list(range(world_size)):
            raise Damaged(f"it does not list each of {world_size} ranks once, in order")
        return cls(_count(body, "step"), _count(body, "attempt"), float(committed_s), shards)


@dataclass(frozen=True)
class Fence:
    """Attempts below `attempt` are shut out; only their checkpoints in `admitted` still count."""

    attempt: int
    admitted: frozenset[str]

    def to_bytes(self) -> bytes:
        """The fence as the bytes of its file."""
        return seal(
            {
                "format": FENCE_FORMAT,
                "attempt": self.attempt,
                "admitted": sorted(self.admitted),
            }
        )

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """A fence from its file's bytes. Raises Damaged."""
        body = unseal(data, FENCE_FORMAT)
        _only_keys(body, {"format", "attempt", "admitted"})
        admitted = body["admitted"]
        if not isinstance(admitted, list) or not all(isinstance(n, str) for n in admitted):
            raise Damaged("admitted is not a list of names")
        return cls(_count(body, "attempt"), frozenset(admitted))


@dataclass(frozen=True)
class Hold:
    """Someone reads a folder, since that wall-clock time."""

    folder: str
    since_s: float

    def to_bytes(self) -> bytes:
        """The note as the bytes of its file."""
        return seal({"format": HOLD_FORMAT, "folder": self.folder, "since_s": self.since_s})

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """A note from its file's bytes. Raises Damaged."""
        body = unseal(data, HOLD_FORMAT)
        _only_keys(body, {"format", "folder", "since_s"})
        folder, since_s = body["folder"], body["since_s"]
        if not isinstance(folder, str) or parse_step_folder(folder) is None:
            raise Damaged(f"folder is {folder!r}, not a checkpoint's")
        if not isinstance(since_s, int | float) or isinstance(since_s, bool):
            raise Damaged(f"since_s is {since_s!r}, not a time")
        return cls(folder, float(since_s))
