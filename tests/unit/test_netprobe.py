"""What a probe promises: honest numbers, bounded cost, and no word to strangers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from railweave.agents.netprobe import (
    Budget,
    Listener,
    Opening,
    ProbeFailed,
    connect,
)
from waiting import wait_until

SMALL = Budget(transfer_bytes=4 * 2**20, transfer_s=0.5, pings=20, connect_s=2)


class SlowPath:
    """A relay in front of a listener that lets `bytes_per_s` through in each direction."""

    def __init__(self, opening: Opening, bytes_per_s: float) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._target = (opening.host, opening.port)
        self._bytes_per_s = bytes_per_s
        port = self._server.getsockname()[1]
        self.opening = Opening(host="127.0.0.1", port=port, nonce=opening.nonce)
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()

    def _serve(self) -> None:
        client, _ = self._server.accept()
        target = socket.create_connection(self._target)
        # Small buffers, as on a path whose queues are short.
        for connection in (client, target):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 * 1024)
        back = threading.Thread(target=self._copy, args=(target, client))
        back.start()
        self._copy(client, target)
        back.join()
        client.close()
        target.close()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        began, moved = time.monotonic(), 0
        try:
            while data := source.recv(16 * 1024):
                moved += len(data)
                if len(data) > 1024:
                    due = began + moved / self._bytes_per_s
                    time.sleep(max(0.0, due - time.monotonic()))
                    began, moved = time.monotonic(), 0
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self) -> None:
        self._server.close()
        self._threads[0].join(20)


@contextmanager
def listening(budget: Budget = SMALL) -> Iterator[Listener]:
    listener = Listener("127.0.0.1", budget)
    yield listener
    assert listener.wait(20)


def test_a_probe_measures_round_trips_and_both_directions() -> None:
    with listening() as listener:
        measured = connect(listener.opening, SMALL)
    assert 0 < measured.round_trip_min_s <= measured.round_trip_median_s < 0.5
    assert measured.spread_s >= 0
    assert measured.pings == 20
    assert measured.there_bytes_per_s > 1e6
    assert measured.back_bytes_per_s > 1e6
    assert 2 * SMALL.transfer_bytes <= measured.moved_bytes <= 3 * SMALL.transfer_bytes
    assert measured.loss is not None and measured.loss < 0.5


def test_a_probe_of_few_segments_does_not_tell_their_loss() -> None:
    few = SMALL.model_copy(update={"transfer_bytes": 0})
    with listening(few) as listener:
        measured = connect(listener.opening, few)
    assert (measured.loss, measured.there_bytes_per_s) == (None, None)


def test_the_rate_of_a_slow_path_is_measured_and_time_bounds_the_cost() -> None:
    budget = Budget(transfer_bytes=10**9, transfer_s=0.6, pings=5, connect_s=2)
    with listening(budget) as listener:
        path = SlowPath(listener.opening, bytes_per_s=4e6)
        measured = connect(path.opening, budget)
        path.close()
    assert measured.there_bytes_per_s == pytest.approx(4e6, rel=0.5)
    assert measured.back_bytes_per_s == pytest.approx(4e6, rel=0.5)
    assert measured.moved_bytes < 20e6
    assert measured.took_s < budget.deadline_s


def test_a_stranger_is_dropped_and_the_probe_still_goes_through() -> None:
    with listening() as listener:
        where = (listener.opening.host, listener.opening.port)
        for said in (b"x" * 32, b"GET / HTTP/1.1\r\nHost: nodes\r\n\r\n__", b""):
            heard = b""
            with socket.create_connection(where, 5) as stranger, suppress(OSError):
                stranger.sendall(said)
                stranger.shutdown(socket.SHUT_WR)
                heard = stranger.recv(100)
            assert heard == b""
        assert connect(listener.opening, SMALL).pings == 20


def test_a_stranger_that_says_nothing_does_not_hold_the_door_for_long() -> None:
    with listening() as listener:
        where = (listener.opening.host, listener.opening.port)
        with socket.create_connection(where, 5):
            assert connect(listener.opening, SMALL).pings == 20


def test_a_wrong_nonce_is_refused_with_an_error_that_says_where() -> None:
    with listening() as listener:
        wrong = listener.opening.model_copy(update={"nonce": "0" * 32})
        with pytest.raises(ProbeFailed, match=r"probe to 127\.0\.0\.1:\d+ failed while"):
            connect(wrong, SMALL)
        connect(listener.opening, SMALL)


def test_a_listener_serves_once_and_closes() -> None:
    with listening() as listener:
        connect(listener.opening, SMALL)
        assert listener.wait(5)
        with pytest.raises(ProbeFailed, match="failed while connecting"):
            connect(listener.opening, SMALL)


def test_nonces_are_never_the_same() -> None:
    budget = Budget(transfer_bytes=1, transfer_s=0.01, pings=1, connect_s=0.01)
    listeners = [Listener("127.0.0.1", budget) for _ in range(8)]
    assert len({listener.opening.nonce for listener in listeners}) == 8
    for listener in listeners:
        connect(listener.opening, budget.model_copy(update={"connect_s": 2}))
        assert listener.wait(10)


def test_a_listener_to_which_nobody_comes_closes_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Budget, "deadline_s", 0.2)
    listener = Listener("127.0.0.1", SMALL)
    assert listener.wait(5)
    with pytest.raises(ProbeFailed, match="failed while connecting"):
        connect(listener.opening, SMALL)


def test_a_connector_that_goes_away_leaves_no_listener_behind() -> None:
    with listening() as listener:
        where = (listener.opening.host, listener.opening.port)
        with socket.create_connection(where, 5) as connection:
            connection.sendall(listener.opening.nonce.encode() + b".")
    assert listener.wait(0)


def test_a_listener_that_hangs_makes_the_probe_fail_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Budget, "deadline_s", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        opening = Opening(host="127.0.0.1", port=server.getsockname()[1], nonce="0" * 32)
        began = time.monotonic()
        with pytest.raises(ProbeFailed, match="failed while round trips"):
            connect(opening, SMALL)
        assert time.monotonic() - began < 30


def test_the_other_end_cannot_make_a_node_take_more_than_the_budget() -> None:
    tiny = Budget(transfer_bytes=1000, transfer_s=0.2, pings=2, connect_s=1)
    with listening(tiny) as listener:
        greedy = Budget(transfer_bytes=64 * 2**20, transfer_s=5, pings=2, connect_s=1)
        with pytest.raises(ProbeFailed, match="failed while sending"):
            connect(listener.opening, greedy)


@pytest.mark.skipif(not socket.has_ipv6, reason="this Python has no IPv6")
def test_probes_run_over_ipv6_too() -> None:
    try:
        listener = Listener("::1", SMALL)
    except OSError:
        return  # a machine without an IPv6 loopback has nothing to test here
    assert connect(listener.opening, SMALL).pings == 20
    assert wait_until(lambda: listener.wait(0), 30, "the listener has closed")


@pytest.mark.parametrize("wrong", [{"transfer_bytes": -1}, {"transfer_s": -1}, {"pings": 0}])
def test_a_budget_of_nothing_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="greater than"):
        Budget.model_validate(wrong)
