"""Checkpoints on the nodes' own disks, each shard with a second copy in another node's memory.

A place is written `node:///nvme/checkpoints`; `{node}` in it stands for the node's name, for nodes
that share a disk. What a rank writes goes to its own node's folder and

    a shard       into the memory of the neighbour, which is in another fault domain
    a receipt     onto the disk of rank 0's node, where it is waited for
    a manifest    (and a layout) onto the disk of every node of the attempt
    a fence       onto the disk of every node that can be reached

and counts as written only then. Whoever reads sees all of it as one directory. Names and contents
are those of every other checkpoint, and so are the checks.
"""

from __future__ import annotations

import errno
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, Self, TypeVar, cast
from urllib.parse import quote, unquote, urlsplit

from .checkpoint_manifest import LAYOUT_NAME, MANIFEST_NAME, parse_fence_name
from .checkpoint_storage import FolderStorage, Writer, checksum
from .copy_wire import BLOCK_BYTES, Channel, connect

PEERS_VARIABLE: Final = "RAILWEAVE_CHECKPOINT_PEERS"
NODE_VARIABLE: Final = "RAILWEAVE_NODE"
SCHEME: Final = "node"
_CONNECT_S = 10.0
_AT_A_TIME = 16
_IN_MEMORY_BYTES = 64 << 20
Found = TypeVar("Found")


def is_node_place(place: str) -> bool:
    """Whether checkpoints there lie on each node's own disk."""
    return place.startswith(f"{SCHEME}://")


def node_directory(place: str, node: str) -> str:
    """A node's own folder of a `node://` place. Raises ValueError."""
    url = urlsplit(place)
    path = unquote(url.path)
    if url.netloc or not path.startswith("/") or path == "/":
        raise ValueError(f"{place} names no folder on every node; write node:///folder")
    quoted = quote(node, safe="").replace(".", "%2E")
    return path.replace("{node}", quoted)


@dataclass(frozen=True)
class Peers:
    """The copy servers a node's ranks use, as `host:port`.

    own: this node's, empty where it has none. home: that of rank 0's node. copy_to: the
    neighbour's. writers: of all nodes of the attempt. readers: of all that may hold something.
    """

    job_id: str
    key_file: str
    own: str = ""
    home: str = ""
    copy_to: str = ""
    writers: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()

    def to_text(self) -> str:
        """As it stands in the environment."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Self:
        """From the environment. Raises ValueError."""
        try:
            data = json.loads(text)
            writers, readers = tuple(data.pop("writers")), tuple(data.pop("readers"))
            return cls(**data, writers=writers, readers=readers)
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            raise ValueError(f"{PEERS_VARIABLE} is not what Railweave sets: {error}") from error


class NodeStorage:
    """The directories of all nodes as one. Requests to other nodes run side by side."""

    def __init__(self, url: str, directory: str, peers: Peers, key: str) -> None:
        self.url = url.rstrip("/")
        self.disk = FolderStorage(Path(directory))
        self.peers = peers
        self._key = key

    def __str__(self) -> str:
        return self.url

    @staticmethod
    def from_environment(url: str, environment: Mapping[str, str]) -> NodeStorage:
        """For a rank that Railweave has started. Raises ValueError elsewhere, OSError."""
        text, node = environment.get(PEERS_VARIABLE, ""), environment.get(NODE_VARIABLE, "")
        if not text or not node:
            raise ValueError(
                f"{url} lies on the nodes of a job that Railweave runs; elsewhere give a folder, "
                "or use `railweave checkpoints`"
            )
        return storage_of(url, node, text)

    def path(self, name: str) -> str:
        """The URL of a name, the same on every node."""
        self.disk.path(name)
        return f"{self.url}/{name}"

    def folders(self) -> list[str]:
        """Names of the folders on any node."""
        found = set(self.disk.folders())
        for listing in self._listings():
            found |= set(listing) - {""}
        return sorted(found)

    def files(self, folder: str = "", *, near: bool = False) -> dict[str, int]:
        """Size in bytes of every file in a folder on any node; `near`: on this one's disk."""
        found = self.disk.files(folder)
        if near:
            return found
        for listing in self._listings():
            for name, size_bytes in listing.get(folder, {}).items():
                found.setdefault(name, size_bytes)
        return found

    def read(self, name: str) -> bytes:
        """A small file's bytes."""
        with self.open(name) as stream:
            return stream.read()

    def open(self, name: str, *, wanted_sha256: str = "") -> BinaryIO:
        """A file of this node, else a local copy of another node's."""

        def fetch(channel: Channel) -> BinaryIO:
            answer = _asked(channel, {"op": "get", "name": name})
            # Deleted as soon as it is closed, wherever that is.
            stream = cast(BinaryIO, tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES))  # noqa: SIM115
            try:
                channel.payload(answer, stream.write)
            except BaseException:
                stream.close()
                raise
            stream.seek(0)
            return stream

        with suppress(FileNotFoundError):
            if wanted_sha256 in ("", self._own_checksum(name)[1]):
                return self.disk.open(name)
        for peer in self._having(name):
            with suppress(OSError, ValueError), self._channel(peer) as channel:
                if wanted_sha256 in ("", _checksum_there(channel, name)[1]):
                    return fetch(channel)
        # Nobody has what is wanted: what there is, for the caller to refuse.
        return self.disk.open(name)

    def checksum(self, name: str, *, wanted_sha256: str = "") -> tuple[int, str]:
        """Size in bytes and SHA-256 of a file, computed where it lies."""
        found = None
        with suppress(FileNotFoundError):
            found = self._own_checksum(name)
        if found is None or wanted_sha256 not in ("", found[1]):
            for peer in self._having(name):
                with suppress(OSError, ValueError), self._channel(peer) as channel:
                    there = _checksum_there(channel, name)
                    if found is None or there[1] == wanted_sha256:
                        found = there
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no node that answers has it", self.path(name))
        return found

    def _own_checksum(self, name: str) -> tuple[int, str]:
        with self.disk.open(name) as stream:
            return checksum(stream)

    def make_folder(self, folder: str = "") -> None:
        """Make this node's folder, durably; others make theirs when they are given something."""
        self.disk.make_folder(folder)

    @contextmanager
    def writing(self, name: str) -> Iterator[Writer]:
        """Write a file onto this node's disk, then to the nodes that must have it too."""
        with self.disk.writing(name) as writer:
            yield writer
        for peer, durable, needed in self._copies_of(name):
            try:
                self._put(peer, name, durable)
            except (OSError, ValueError) as error:
                if not needed:
                    continue
                # What is not safe is not there: half of a promise must not be found later.
                with suppress(OSError):
                    self.disk.remove(name)
                number = (isinstance(error, OSError) and error.errno) or errno.EIO
                raise OSError(number, f"no second copy on {peer}: {error}") from error

    def remove(self, name: str) -> None:
        """Remove a file here and wherever it was copied to."""
        self.disk.remove(name)
        self._tell((peer for peer, _, _ in self._copies_of(name)), {"op": "remove", "name": name})

    def remove_folder(self, folder: str) -> None:
        """Remove a folder on every node that can be reached."""
        self.disk.remove_folder(folder)
        # This node's own memory holds shards of its neighbour.
        self._tell([self.peers.own, *self._others()], {"op": "remove", "name": folder})

    def free_bytes(self) -> int | None:
        """Bytes free on this node's disk."""
        return self.disk.free_bytes()

    def _copies_of(self, name: str) -> list[tuple[str, bool, bool]]:
        """Where a file goes besides this node: peer, onto the disk, and whether it must succeed."""
        peers, file = self.peers, name.rpartition("/")[2]
        if parse_fence_name(file) is not None:
            return [(peer, True, False) for peer in self._others()]
        if file in (MANIFEST_NAME, LAYOUT_NAME):
            return [(peer, True, True) for peer in peers.writers if peer != peers.own]
        if file.startswith("shard-") and file.endswith(".json"):
            return [(peers.home, True, True)] if peers.home not in ("", peers.own) else []
        if file.startswith("shard-"):
            return [(peers.copy_to, False, True)] if peers.copy_to else []
        # Notes of readers, for whoever removes: rank 0 does.
        return [(peers.home, True, False)] if peers.home not in ("", peers.own) else []

    def _put(self, peer: str, name: str, durable: bool) -> None:
        with self.disk.open(name) as stream, self._channel(peer) as channel:
            size_bytes, sha256 = checksum(stream)
            stream.seek(0)
            blocks = iter(lambda: stream.read(BLOCK_BYTES), b"")
            request = {"op": "put", "name": name, "durable": durable, "sha256": sha256}
            _asked(channel, request, size_bytes, blocks)

    def _others(self) -> list[str]:
        """All peers but this node's own, each once."""
        every = dict.fromkeys([*self.peers.writers, *self.peers.readers])
        return [peer for peer in every if peer != self.peers.own]

    def _listings(self) -> list[dict[str, dict[str, int]]]:
        """What each node that answers has, this one's memory included."""
        every = dict.fromkeys(filter(None, [self.peers.own, *self._others()]))

        def listing(channel: Channel) -> dict[str, dict[str, int]]:
            return dict(_asked(channel, {"op": "list"})["folders"])

        return [found for found in self._each(every, listing) if found is not None]

    def _tell(self, peers: Iterable[str], request: dict[str, Any]) -> None:
        self._each(filter(None, peers), lambda channel: _asked(channel, request))

    def _having(self, name: str) -> list[str]:
        """The nodes that have a file, this one's memory first."""
        every = list(dict.fromkeys(filter(None, [self.peers.own, *self._others()])))
        named = self._each(every, self._names)
        return [peer for peer, names in zip(every, named, strict=True) if names and name in names]

    def _names(self, channel: Channel) -> set[str]:
        return {
            f"{folder}/{file}" if folder else file
            for folder, files in _asked(channel, {"op": "list"})["folders"].items()
            for file in files
        }

    def _each(self, peers: Iterable[str], ask: Callable[[Channel], Found]) -> list[Found | None]:
        """What each node answers; None for those that do not."""

        def one(peer: str) -> Found | None:
            try:
                with self._channel(peer) as channel:
                    return ask(channel)
            except (OSError, ValueError):
                return None

        every = list(peers)
        if not every:
            return []
        with ThreadPoolExecutor(min(len(every), _AT_A_TIME)) as pool:
            return list(pool.map(one, every))

    @contextmanager
    def _channel(self, peer: str) -> Iterator[Channel]:
        host, _, port = peer.rpartition(":")
        channel = connect(host, int(port), self.peers.job_id, self._key, _CONNECT_S)
        try:
            yield channel
        finally:
            channel.close()


def storage_of(url: str, node: str, peers_text: str) -> NodeStorage:
    """A node's storage, with the key that its agent has laid down. Raises ValueError, OSError."""
    peers = Peers.parse(peers_text)
    key = json.loads(Path(peers.key_file).read_text())["key"]
    return NodeStorage(url, node_directory(url, node), peers, key)


def _asked(
    channel: Channel, request: dict[str, Any], size_bytes: int = 0, payload: Iterable[Any] = ()
) -> dict[str, Any]:
    """A node's answer. Raises OSError with what it refused."""
    channel.send(request, size_bytes, payload)
    answer = channel.receive()
    if not answer["ok"]:
        raise OSError(int(answer["errno"]), str(answer["why"]))
    return answer


def _checksum_there(channel: Channel, name: str) -> tuple[int, str]:
    answer = _asked(channel, {"op": "checksum", "name": name})
    return int(answer["size_bytes"]), str(answer["sha256"])
