"""Opening the store's database: SQLite in a folder by default, PostgreSQL by URL.

SQLite runs in WAL mode with synchronous=FULL: NORMAL would survive a killed process too, but may
lose the last transactions with the machine's power, and a launch that is forgotten is launched
again beside itself. A commit costs a few milliseconds and there are few.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, insert, inspect, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from ..placement.errors import InvalidInput, Problem
from . import tables

BUSY_TIMEOUT_S = 10.0


class StoreUnusable(InvalidInput):
    """The store cannot be opened; the message says what it is and what to do."""


class Database:
    """An open database with the store's schema. Build it with `open`."""

    def __init__(self, engine: Engine, source: str) -> None:
        self._engine = engine
        self.source = source

    @classmethod
    def open(cls, location: str | os.PathLike[str]) -> Database:
        """Open, and make when it is new, the store at a file path or at a database URL.

        Raises StoreUnusable for a damaged or foreign file, a newer schema, an unreachable server.
        """
        text = os.fspath(location)
        url = text if "://" in text else f"sqlite:///{Path(text).absolute()}"
        try:
            parsed = make_url(url)
            source = parsed.render_as_string(hide_password=True)
            if parsed.get_backend_name() == "sqlite":
                if not parsed.database:
                    fix = "give a file path; a store in memory would not outlive its daemon"
                    raise _unusable(source, "names no file", fix)
                source = parsed.database
                _check_sqlite_file(Path(parsed.database))
            engine = create_engine(parsed)
        except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
            fix = "give a file path or postgresql+psycopg://user@host/name, its driver installed"
            raise _unusable("store", f"cannot use {_hidden(url)}: {error}", fix) from error
        if engine.dialect.name == "sqlite":
            _prepare_sqlite(engine)
        database = cls(engine, source)
        try:
            database._ensure_schema()
        except DBAPIError as error:
            database.close()
            fix = "see that it exists, can be written, and is not locked by another program"
            raise _unusable(source, f"cannot be opened: {error.orig}", fix) from error
        except StoreUnusable:
            database.close()
            raise
        return database

    def close(self) -> None:
        """Let go of every connection."""
        self._engine.dispose()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A consistent view for reading."""
        with self._engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One transaction that writes; it holds the write lock from its first statement on."""
        with (
            self._engine.connect().execution_options(railweave_write=True) as connection,
            connection.begin(),
        ):
            yield connection

    def _ensure_schema(self) -> None:
        with self.write() as connection:
            names = set(inspect(connection).get_table_names())
            if tables.meta.name in names:
                _check_version(connection, self.source)
                return
            ours = names & set(tables.metadata.tables)
            if ours:
                fix = "give the store a database of its own"
                raise _unusable(self.source, f"holds foreign tables {', '.join(sorted(ours))}", fix)
            tables.metadata.create_all(connection)
            version = {"key": "schema_version", "value": str(tables.SCHEMA_VERSION)}
            connection.execute(insert(tables.meta), [version, {"key": "epoch", "value": "0"}])
            if connection.dialect.name == "sqlite":
                connection.exec_driver_sql(f"PRAGMA application_id = {tables.APPLICATION_ID}")


def _hidden(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def _unusable(source: str, found: str, fix: str) -> StoreUnusable:
    return StoreUnusable(source, [Problem("", found, fix)])


def _check_version(connection: Connection, source: str) -> None:
    query = select(tables.meta.c.value).where(tables.meta.c.key == "schema_version")
    found = connection.execute(query).scalar_one_or_none()
    if found is None or not found.isdigit():
        raise _unusable(
            source, f"has schema version {found!r}", "restore it from a copy, or start a new store"
        )
    if int(found) > tables.SCHEMA_VERSION:
        found_text = f"has schema version {found}; this Railweave knows {tables.SCHEMA_VERSION}"
        raise _unusable(source, found_text, "use the Railweave that wrote it, or a newer one")


def _check_sqlite_file(path: Path) -> None:
    """Refuse what is not our SQLite file before SQLAlchemy touches it."""
    source = str(path)
    if not path.parent.is_dir():
        raise _unusable(source, "its folder does not exist", f"make {path.parent} first")
    if path.is_dir():
        raise _unusable(source, "is a folder", "give the path of a file in it")
    if not path.exists() or path.stat().st_size == 0:
        return
    damaged = "restore it from a copy, or move it away to start with an empty store"
    foreign = "give another path; this file belongs to another program"
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=10.0)
    except sqlite3.Error as error:
        raise _unusable(source, f"cannot be opened: {error}", "see who may write it") from error
    try:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        count = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if application != tables.APPLICATION_ID and (application or count):
            raise _unusable(source, "is not a Railweave store", foreign)
        verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if verdict != "ok":
            raise _unusable(source, f"is damaged: {verdict}", damaged)
    except sqlite3.OperationalError as error:
        raise _unusable(
            source, f"cannot be read: {error}", "see who may write or locks it"
        ) from error
    except sqlite3.DatabaseError as error:
        if "not a database" in str(error):
            raise _unusable(source, "is not a SQLite file", foreign) from error
        raise _unusable(source, f"is damaged: {error}", damaged) from error
    finally:
        connection.close()


def _prepare_sqlite(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _record: Any) -> None:
        # The driver would begin transactions by itself, and too late: see `_begin`.
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in (
            f"busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}",
            "journal_mode = WAL",
            "synchronous = FULL",
            "foreign_keys = ON",
        ):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # A transaction that reads first and writes later fails at once when another one wrote in
        # between, whatever the busy timeout; taking the write lock first waits instead.
        write = connection.get_execution_options().get("railweave_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
