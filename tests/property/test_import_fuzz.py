"""Whatever is done to a file, importing it gives facts or an error of ours, soon and in little."""

from __future__ import annotations

import json
import random
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from effort import examples
from file_mutations import damaged
from railweave.placement import Cluster, InvalidInput
from railweave.placement.importers.clusters import assembled
from railweave.placement.importers.facts import Facts
from railweave.placement.importers.registry import importers, read_source, recognised
from railweave.placement.importers.source import Source

TESTS = Path(__file__).resolve().parents[1]
NAMES = sorted(path.name for path in (TESTS / "samples").iterdir())
MOST_CPU_S = 15.0
MOST_MEMORY_BYTES = 2**30
LONGEST_MESSAGE = 20_000
LARGEST_INPUT = 64 * 2**10
IN_EVERY_RUN, IN_SOAK = 40, 10_000


@dataclass(frozen=True)
class Whole:
    """A valid file: its format, its text and, where it reads, what it says."""

    format: str
    text: str
    facts: Facts


@cache
def samples() -> dict[str, Whole]:
    found = {}
    for name in NAMES:
        [path] = (TESTS / "samples" / name).iterdir()
        source = Source.load(path)
        found[name] = Whole(name, source.text, read_source(source))
    return found


@cache
def given_files() -> dict[str, list[Whole]]:
    """The small files of reference material that are read, by format; none where it is absent."""
    found: dict[str, list[Whole]] = {}
    for path in sorted((TESTS.parents[1] / "shared" / "inputs").glob("*/*")):
        try:
            source = Source.load(path)
            importer = recognised(source) if len(source.text) <= LARGEST_INPUT else None
            if importer is not None:
                whole = Whole(importer.name, source.text, importer.read(source))
                found.setdefault(importer.name, []).append(whole)
        except InvalidInput:
            continue
    return found


def mutants(wholes: Sequence[Whole], count: int) -> Iterator[tuple[str, bytes, random.Random]]:
    for number in range(count):
        rng = random.Random(f"{wholes[0].format} {number}")
        whole = wholes[number % len(wholes)]
        other = samples()[rng.choice(NAMES)]
        yield f"mutant {number} of {whole.format}", damaged(whole.text, other.text, rng), rng


def check(label: str, data: bytes, rng: random.Random, name: str) -> bool:
    """Whether the bytes were read. Fails where they gave anything but facts or InvalidInput."""
    start = time.process_time()
    beside = rng.choice(NAMES)
    read = False
    try:
        source = Source.of_bytes("file", data)
        facts = read_source(source, name if rng.random() < 0.4 else None)
        read = True
        assert isinstance(facts, Facts)
        shown = [dict(facts.summary), dict(facts.measurements), list(facts.warnings)]
        json.dumps(shown, allow_nan=False)
        together = {"file": facts, beside: samples()[beside].facts}
        if rng.random() < 0.7:
            del together[beside]
        cluster = assembled(together).cluster
        if len(cluster.nodes) < 200:
            assert Cluster.parse(json.loads(json.dumps(cluster.to_data()))) == cluster
    except InvalidInput as error:
        assert str(error).isprintable() or "\n" in str(error)
        assert len(str(error)) < LONGEST_MESSAGE, f"{label}: a message of {len(str(error))}"
    except Exception as error:
        error.add_note(f"{label}: {data[:4000]!r}")
        raise
    spent = time.process_time() - start
    assert spent < MOST_CPU_S, f"{label} took {spent:.1f} s: {data[:4000]!r}"
    return read


def memory_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize("name", NAMES)
def test_damaged_files_are_read_or_refused(name: str) -> None:
    count = examples(IN_EVERY_RUN)
    before = memory_bytes()
    read = [check(*mutant, name) for mutant in mutants([samples()[name]], count)]
    assert 0 < sum(read) < count
    assert memory_bytes() - before < MOST_MEMORY_BYTES


@pytest.mark.soak
@pytest.mark.parametrize("name", NAMES)
def test_ten_thousand_damaged_files_are_read_or_refused(name: str) -> None:
    before = memory_bytes()
    wholes = [samples()[name], *given_files().get(name, [])]
    for mutant in mutants(wholes, IN_SOAK):
        check(*mutant, name)
    assert memory_bytes() - before < MOST_MEMORY_BYTES


def test_every_format_is_damaged() -> None:
    assert {importer.name for importer in importers()} == set(NAMES)
