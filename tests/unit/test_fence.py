"""A rank whose attempt is over finds no rendezvous: neither its port nor a store admits it."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from railweave.agents import port_book
from railweave.agents.checkpoint import FencedAttempt
from railweave.agents.fence import RUN_ID_VARIABLE, admit, new_run_id
from railweave.agents.port_book import PortBook
from torch.distributed import TCPStore


@pytest.fixture
def store() -> TCPStore:
    return TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=30))


def client(store: TCPStore) -> TCPStore:
    return TCPStore("127.0.0.1", store.port, is_master=False, timeout=timedelta(seconds=30))


def test_all_ranks_of_an_attempt_are_admitted_and_those_of_an_older_one_never_again(
    store: TCPStore,
) -> None:
    first, second = new_run_id("job-1", 9), new_run_id("job-1", 10)
    for rank in (store, client(store)):
        admit(rank, first)
    admit(client(store), second)  # the next attempt takes the store over
    for late in (store, client(store)):
        with pytest.raises(FencedAttempt, match=r"run job-1/9, .* are of job-1/10"):
            admit(late, first)
    admit(client(store), second)


def test_neither_another_job_nor_another_launch_of_the_same_number_is_admitted(
    store: TCPStore,
) -> None:
    admit(store, new_run_id("job-1", 3))
    for stranger in (new_run_id("job-2", 4), new_run_id("job-1", 3), new_run_id("job-1", 2)):
        with pytest.raises(FencedAttempt, match="its attempt is over"):
            admit(client(store), stranger)


def test_of_attempts_that_come_at_the_same_time_the_latest_stays(store: TCPStore) -> None:
    runs = [new_run_id("job-1", number) for number in range(1, 9)]

    def come(run: str) -> bool:
        try:
            admit(client(store), run)
        except FencedAttempt:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        came = list(pool.map(come, runs))
    assert came[-1]
    admit(store, runs[-1])
    for run in runs[:-1]:
        assert not come(run)


def test_without_railweave_everybody_is_admitted(
    store: TCPStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(RUN_ID_VARIABLE, raising=False)
    admit(store)
    monkeypatch.setenv(RUN_ID_VARIABLE, new_run_id("job-1", 1))
    admit(store)
    with pytest.raises(FencedAttempt):
        admit(client(store), new_run_id("job-1", 1))


def test_no_port_is_given_twice_also_by_the_agent_that_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = iter([5000, 5000, 5001, 5000, 5001, 5002])

    class Server:
        def __enter__(self) -> Server:
            return self

        def __exit__(self, *error: object) -> None: ...

        def getsockname(self) -> tuple[str, int]:
            return "127.0.0.1", next(offered)

    monkeypatch.setattr(socket, "create_server", lambda *_, **__: Server())
    book = PortBook(tmp_path / "ports")
    assert [book.free_port("127.0.0.1") for _ in range(2)] == [5000, 5001]
    assert PortBook(tmp_path / "ports").free_port("127.0.0.1") == 5002


def test_ports_of_long_ago_are_given_again_and_a_book_that_is_damaged_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ports"
    path.write_bytes(b"no numbers\0here 70")
    book = PortBook(path)
    given = [book.free_port("127.0.0.1") for _ in range(50)]
    assert len(set(given)) == 50
    with socket.create_server(("127.0.0.1", given[-1])):
        assert book.free_port("127.0.0.1") not in given
    assert len(path.read_text().split()) <= port_book.KEPT
