"""`railweave checkpoints JOB`: which there are, whether they are whole, and taking one out."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from ...agents.checkpoint_history import (
    Check,
    CheckpointError,
    Unusable,
    current_fence,
    newest_first,
    read_manifest,
    storage_at,
    verified,
)
from ...agents.checkpoint_keep import holding
from ...agents.checkpoint_manifest import MANIFEST_NAME, Manifest, parse_step_folder
from ...agents.checkpoint_nodes import NodeStorage, Peers
from ...agents.checkpoint_restore import restore
from ...agents.checkpoint_storage import Storage
from ...placement.drawing.svg import bytes_text
from ..views import CheckpointPlace
from .main import Failed
from .output import console, json_option, print_json, table
from .session import connected


@dataclass(frozen=True)
class Row:
    """A folder of a step. why: what is wrong with it; empty for a usable one."""

    step: int
    attempt: int
    path: str
    manifest: Manifest | None
    why: str


@click.command("checkpoints")
@click.argument("job", metavar="JOB")
@click.option("--verify", is_flag=True, help="Read every byte and compare checksums.")
@click.option(
    "--restore",
    "target",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Copy the newest usable one, or that of --step, into a directory, checked.",
)
@click.option("--step", type=click.IntRange(min=0), help="Only this step.")
@json_option
def command(job: str, verify: bool, target: str | None, step: int | None, as_json: bool) -> None:
    """List a job's checkpoints, newest first; JOB is a job's id, or a folder or URL of checkpoints.

    With --verify, exits 1 when one that was committed is damaged.
    """
    with _place(job) as storage:
        if target is not None:
            _restore(storage, target, step, as_json)
            return
        check = Check.FULL if verify else Check.SIZES
        rows = [row for row in _rows(storage, check) if step in (None, row.step)]
        if not rows and step is not None:
            raise Failed(f"no checkpoint of step {step} in {storage}")
        if as_json:
            print_json([_data(row, verify) for row in rows])
        else:
            _print(rows, storage, verify)
        damaged = [row for row in rows if row.why and _committed(storage, row)]
        if verify and damaged:
            raise Failed(f"{len(damaged)} of {len(rows)} checkpoints in {storage} are damaged")


@contextlib.contextmanager
def _place(job: str) -> Iterator[Storage]:
    """The storage of a directory, or of a job that the daemon knows."""
    if "/" in job:
        yield storage_at(job)
        return
    with connected() as client:
        place = client.job(job).checkpoint_place()
    with _opened(place) as storage:
        yield storage


@contextlib.contextmanager
def _opened(place: CheckpointPlace) -> Iterator[Storage]:
    if not place.peers:
        yield storage_at(place.directory)
        return
    # What lies on this machine's own disk is seen through its node's copy server, like the rest.
    with tempfile.TemporaryDirectory(prefix="railweave-") as empty:
        yield NodeStorage(place.directory, empty, Peers.parse(place.peers), place.key)


def _rows(storage: Storage, check: Check) -> list[Row]:
    found = []
    try:
        fence = current_fence(storage)
        for folder in newest_first(storage):
            parsed = parse_step_folder(folder)
            if parsed is None:
                continue
            manifest, why = None, ""
            try:
                manifest = read_manifest(storage, folder, None)
                with holding(storage, folder):
                    verified(storage, folder, check, fence, None)
            except Unusable as fault:
                why = str(fault)
            found.append(Row(*parsed, storage.path(folder), manifest, why))
    except OSError as error:
        raise CheckpointError(f"cannot list the checkpoints in {storage}: {error}") from error
    return found


def _committed(storage: Storage, row: Row) -> bool:
    folder = row.path.rstrip("/").rpartition("/")[2]
    return MANIFEST_NAME in storage.files(folder)


def _data(row: Row, verify: bool) -> dict[str, object]:
    manifest = row.manifest
    return {
        "step": row.step,
        "attempt": row.attempt,
        "path": row.path,
        "usable": not row.why,
        "verified": verify and not row.why,
        "why_not": row.why,
        "ranks": manifest.world_size if manifest else None,
        "size_bytes": manifest.size_bytes if manifest else None,
        "committed_s": manifest.committed_s if manifest else None,
        "any_world_size": manifest.reshardable if manifest else None,
    }


def _print(rows: list[Row], storage: Storage, verify: bool) -> None:
    screen = console()
    if not rows:
        screen.print(f"no checkpoint in {storage}")
        return
    now_s = time.time()
    cells = []
    for row in rows:
        manifest = row.manifest
        state = row.why or ("whole, every byte compared" if verify else "whole by its sizes")
        cells.append(
            [
                row.step,
                row.attempt,
                manifest.world_size if manifest else "",
                bytes_text(manifest.size_bytes) if manifest else "",
                _age(now_s - manifest.committed_s) if manifest else "",
                state,
            ]
        )
    right = ["step", "attempt", "ranks", "size", "age"]
    screen.print(table([*right, "state"], cells, right=right))
    screen.print(f"in {storage}")


def _age(age_s: float) -> str:
    for unit, length_s in (("d", 86400), ("h", 3600), ("min", 60)):
        if age_s >= 2 * length_s:
            return f"{age_s / length_s:.0f} {unit}"
    return f"{max(0.0, age_s):.0f} s"


def _restore(storage: Storage, target: str, step: int | None, as_json: bool) -> None:
    restored = restore(storage, Path(os.path.abspath(target)), step)
    if as_json:
        print_json(
            {"path": restored.path, "step": restored.step, "size_bytes": restored.size_bytes}
        )
        return
    console().print(
        f"step {restored.step}, {bytes_text(restored.size_bytes)}, every byte compared: "
        f"{restored.path}"
    )
