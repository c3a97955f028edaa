"""Where checkpoints lie: a folder, or any place fsspec can reach by URL.

Names given to a storage are plain names that Railweave itself makes, at most one folder deep;
nothing else is accepted, so nothing outside the directory is ever read, written or removed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol
from urllib.parse import unquote, urlsplit

_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*(/[a-z0-9][a-z0-9.-]*)?")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(::|://)")


_BLOCK_BYTES = 1 << 20


class Writer(Protocol):
    """Takes the bytes of one file, in order."""

    def write(self, data: Any, /) -> int:
        """Take bytes or a buffer; returns how many bytes it held."""


class Storage(Protocol):
    """The few operations checkpoints need. All raise OSError when the place refuses."""

    def path(self, name: str) -> str:
        """The full path or URL of a name, as `open_storage` would take it."""

    def folders(self) -> list[str]:
        """Names of the folders directly in the directory; none when it does not exist."""

    def files(self, folder: str = "", *, near: bool = False) -> dict[str, int]:
        """Size in bytes of every file directly in a folder; none when it does not exist.

        near: only what this node has, where nodes keep their shards to themselves.
        """

    def read(self, name: str) -> bytes:
        """A small file's bytes."""

    def open(self, name: str, *, wanted_sha256: str = "") -> BinaryIO:
        """A file for reading, which can seek; of several copies one with that checksum."""

    def checksum(self, name: str, *, wanted_sha256: str = "") -> tuple[int, str]:
        """Size in bytes and SHA-256 of a file, computed where it lies; of several copies those of
        one with the checksum that is wanted, if there is one.
        """

    def make_folder(self, folder: str = "") -> None:
        """Make the directory, and a folder in it when named, where they do not exist."""

    def writing(self, name: str) -> AbstractContextManager[Writer]:
        """Write a file; when the block ends well it is there for good, wholly."""

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""

    def remove_folder(self, folder: str) -> None:
        """Remove a folder with everything in it, if it is there."""

    def free_bytes(self) -> int | None:
        """Bytes that can still be written, or None where the place does not tell."""


def checksum(stream: BinaryIO) -> tuple[int, str]:
    """Size in bytes and SHA-256 of a stream from where it stands to its end."""
    digest = hashlib.sha256()
    size_bytes = 0
    while block := stream.read(_BLOCK_BYTES):
        digest.update(block)
        size_bytes += len(block)
    return size_bytes, digest.hexdigest()


def is_url(place: str) -> bool:
    """Whether a place is written as a URL, not as a path."""
    return _URL.match(place) is not None


def open_storage(place: str | os.PathLike[str]) -> Storage:
    """The storage at a path or URL: folders, `file://` the same, `node://` folders of each node's
    own, and other schemes by fsspec.

    Raises ValueError for an empty place or a scheme fsspec does not know.
    """
    text = os.fspath(place)
    if not text:
        raise ValueError("no checkpoint directory: give a folder or a URL")
    if "\0" in text:
        raise ValueError("a NUL character in the name of a folder")
    if not is_url(text):
        return FolderStorage(Path(text))
    url = urlsplit(text)
    if url.scheme in ("file", "local") and "::" not in text:
        if url.netloc not in ("", "localhost"):
            raise ValueError(f"{text}: names the host {url.netloc!r}; write file:///folder")
        if not url.path:
            raise ValueError(f"{text} names no folder; write file:///folder")
        return FolderStorage(Path(unquote(url.path)))
    if url.scheme == "node":
        from .checkpoint_nodes import NodeStorage

        return NodeStorage.from_environment(text, os.environ)
    return UrlStorage(text)


def is_plain_name(name: object) -> bool:
    """Whether it is the name of a file or folder as Railweave makes them."""
    return isinstance(name, str) and bool(_NAME.fullmatch(name)) and ".." not in name


def _checked(name: str) -> str:
    if not is_plain_name(name):
        raise ValueError(f"{name!r} is not a name of a checkpoint's file or folder")
    return name


class FolderStorage:
    """A folder of a local or shared file system: temporary name, fsync, rename, fsync again."""

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.abspath(root))

    def __str__(self) -> str:
        return str(self.root)

    def path(self, name: str) -> str:
        """The full path of a name."""
        return str(self.root / _checked(name))

    def folders(self) -> list[str]:
        """Names of the folders in the directory; links are not followed."""
        try:
            with os.scandir(self.root) as entries:
                return sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return []

    def files(self, folder: str = "", *, near: bool = False) -> dict[str, int]:
        """Size in bytes of every regular file in a folder; links are not followed."""
        found: dict[str, int] = {}
        try:
            with os.scandir(self._folder(folder) if folder else self.root) as entries:
                for entry in entries:
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    if stat.S_ISREG(status.st_mode):
                        found[entry.name] = status.st_size
        except FileNotFoundError:
            return {}
        return found

    def read(self, name: str) -> bytes:
        """A small file's bytes."""
        with self.open(name) as stream:
            return stream.read()

    def open(self, name: str, *, wanted_sha256: str = "") -> BinaryIO:
        """A file for reading; a link, a pipe or a device in its place is refused."""
        self._parent(name)
        path = self.path(name)
        # Opening a pipe would otherwise wait for someone to write into it.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        handle = os.open(path, flags)
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            os.close(handle)
            raise OSError(errno.EINVAL, "it is not a plain file", path)
        return os.fdopen(handle, "rb")

    def checksum(self, name: str, *, wanted_sha256: str = "") -> tuple[int, str]:
        """Size in bytes and SHA-256 of a file."""
        with self.open(name) as stream:
            return checksum(stream)

    def make_folder(self, folder: str = "") -> None:
        """Make the folder, durably."""
        if not self.root.is_dir():
            self.root.mkdir(parents=True, exist_ok=True)
            _sync_folder(self.root.parent)
        if not folder:
            return
        try:
            os.mkdir(self.path(folder))
        except FileExistsError:
            self._folder(folder)
        else:
            _sync_folder(self.root)

    @contextmanager
    def writing(self, name: str) -> Iterator[Writer]:
        """Write under a temporary name, sync, rename, sync the folder."""
        parent = self._parent(name)
        target = self.path(name)
        temporary = str(parent / f".{Path(target).name}.{os.getpid()}.{secrets.token_hex(4)}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        handle = os.open(temporary, flags, 0o644)
        try:
            try:
                yield _HandleWriter(handle)
                os.fsync(handle)
            finally:
                os.close(handle)
            os.replace(temporary, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        _sync_folder(parent)

    def remove(self, name: str) -> None:
        """Remove a file, durably."""
        parent = self._parent(name)
        try:
            os.unlink(self.path(name))
        except FileNotFoundError:
            return
        _sync_folder(parent)

    def remove_folder(self, folder: str) -> None:
        """Remove a folder and everything in it; links in it are removed, not followed."""
        try:
            shutil.rmtree(self._folder(folder))
        except FileNotFoundError:
            return
        _sync_folder(self.root)

    def free_bytes(self) -> int | None:
        """Bytes free for this user on the file system."""
        try:
            return shutil.disk_usage(self.root).free
        except OSError:
            return None

    def _folder(self, folder: str) -> Path:
        path = Path(self.path(folder))
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        return path

    def _parent(self, name: str) -> Path:
        folder, _, file = _checked(name).rpartition("/")
        return self._folder(folder) if folder and file else self.root


class _HandleWriter:
    """Writes everything it is given to an open file, however little the system takes at a time."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        written = 0
        while written < len(view):
            written += os.write(self._handle, view[written:])
        return written


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some network file systems cannot sync a folder and make renames durable by themselves.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


class UrlStorage:
    """Any other place, through fsspec. A file may be seen half written there, so a checkpoint
    counts only by its manifest, which is written last and seals everything before it.
    """

    def __init__(self, url: str) -> None:
        # Only here: reading it costs every rank half a second that a plain folder does not need.
        from fsspec.core import url_to_fs

        self.url = url.rstrip("/") if not url.endswith("://") else url
        try:
            self._fs, self._root = url_to_fs(self.url)
        except ImportError as error:
            raise ValueError(f"{url}: {error}") from error
        self._root = self._root.rstrip("/")

    def __str__(self) -> str:
        return self.url

    def path(self, name: str) -> str:
        """The full URL of a name."""
        separator = "" if self.url.endswith("/") else "/"
        return f"{self.url}{separator}{_checked(name)}"

    def folders(self) -> list[str]:
        """Names of the folders in the directory."""
        return sorted(_last(e["name"]) for e in self._listed("") if e["type"] == "directory")

    def files(self, folder: str = "", *, near: bool = False) -> dict[str, int]:
        """Size in bytes of every file in a folder."""
        listed = self._listed(folder)
        return {_last(e["name"]): int(e["size"] or 0) for e in listed if e["type"] == "file"}

    def read(self, name: str) -> bytes:
        """A small file's bytes."""
        with _as_os_errors(self.path(name)):
            data: bytes = self._fs.cat_file(self._inner(name))
            return data

    def open(self, name: str, *, wanted_sha256: str = "") -> BinaryIO:
        """A file for reading."""
        with _as_os_errors(self.path(name)):
            stream: BinaryIO = self._fs.open(self._inner(name), "rb")
            return stream

    def checksum(self, name: str, *, wanted_sha256: str = "") -> tuple[int, str]:
        """Size in bytes and SHA-256 of a file, which is read in full."""
        with _as_os_errors(self.path(name)), self.open(name) as stream:
            return checksum(stream)

    def make_folder(self, folder: str = "") -> None:
        """Make the folder, where the place has folders at all."""
        place = self._inner(folder) if folder else self._root
        with _as_os_errors(place):
            self._fs.makedirs(place, exist_ok=True)

    @contextmanager
    def writing(self, name: str) -> Iterator[Writer]:
        """Write a file under its own name."""
        with (
            _as_os_errors(self.path(name)),
            self._fs.open(self._inner(name), "wb") as stream,
        ):
            yield stream

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with _as_os_errors(self.path(name)):
            if self._fs.exists(self._inner(name)):
                self._fs.rm_file(self._inner(name))

    def remove_folder(self, folder: str) -> None:
        """Remove a folder with everything in it, if it is there."""
        with _as_os_errors(self.path(folder)):
            if self._fs.exists(self._inner(folder)):
                self._fs.rm(self._inner(folder), recursive=True)

    def free_bytes(self) -> int | None:
        """Unknown."""
        return None

    def _inner(self, name: str) -> str:
        return f"{self._root}/{_checked(name)}"

    def _listed(self, folder: str) -> list[dict[str, Any]]:
        place = self._inner(folder) if folder else self._root
        with _as_os_errors(place):
            # Listings are cached by some file systems, but other ranks write here as well.
            self._fs.invalidate_cache(place)
            try:
                entries: list[dict[str, Any]] = self._fs.ls(place, detail=True)
            except FileNotFoundError:
                return []
            return [e for e in entries if e["name"].rstrip("/") != place]


def _last(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2]


@contextmanager
def _as_os_errors(place: str) -> Iterator[None]:
    """Each back end of fsspec has errors of its own; here they are all OSError."""
    try:
        yield
    except (OSError, ValueError, TypeError):
        raise
    except Exception as error:
        raise OSError(errno.EIO, f"{type(error).__name__}: {error}", place) from error
