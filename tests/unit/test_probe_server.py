"""What a probe server promises: probes for those who know the token, and nothing for others."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from railweave.agents.netprobe import Budget
from railweave.agents.nics import LinkState, Nic
from railweave.agents.probe_client import ProbeServers
from railweave.agents.probe_end import NicAddress, ProbeOrder
from railweave.agents.probe_server import TOKEN, ProbeServer
from railweave.agents.rail_nics import rail_nics
from railweave.placement import InvalidInput

SECRET = "a token of some length"
HERE = NicAddress(address="127.0.0.1")
ORDER = ProbeOrder(budget=Budget(transfer_bytes=2**16, transfer_s=0.1, pings=3, connect_s=1))


@contextmanager
def serving(token: str = SECRET) -> Iterator[ProbeServer]:
    server = ProbeServer([HERE], token, port=0)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join(10)
    assert not thread.is_alive()


def servers(*served: ProbeServer, token: str = SECRET) -> ProbeServers:
    names = "abcdefgh"
    return ProbeServers({names[i]: (s.address, s.port) for i, s in enumerate(served)}, token)


def test_two_servers_probe_each_other_for_one_who_knows_the_token() -> None:
    with serving() as one, serving() as two, servers(one, two) as ends:
        expected = ends.listen({("a", "b"): ORDER}, 5)
        assert expected.failures == {}
        probed = ends.connect({("a", "b"): (expected.found["a", "b"], ORDER)}, 10)
        assert probed.failures == {}
        path = probed.found["a", "b"].paths[0]
    assert path.measured and path.measured.there_bytes_per_s and path.measured.back_bytes_per_s
    assert 2 * 2**16 <= path.measured.moved_bytes <= ORDER.most_bytes


def test_a_prober_with_another_token_gets_nothing() -> None:
    with serving() as server, servers(server, token="another token, as long") as ends:
        answers = ends.listen({("b", "a"): ORDER}, 5)
    assert answers.found == {}
    assert "gave no answer to listen" in answers.failures["b", "a"]


def test_a_server_without_the_token_is_not_believed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as impostor:

        def answer() -> None:
            connection, _ = impostor.accept()
            with connection, connection.makefile("rb") as said:
                connection.sendall(json.dumps({"nonce": "0" * 64}).encode() + b"\n")
                said.readline()
                connection.sendall(json.dumps({"proof": "0" * 64}).encode() + b"\n")
                said.readline()

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        where = ("127.0.0.1", impostor.getsockname()[1])
        with ProbeServers({"a": where}, SECRET) as ends:
            answers = ends.listen({("b", "a"): ORDER}, 5)
        thread.join(10)
    assert "does not have the prober's token" in answers.failures["b", "a"]


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\n\r\n", b"{}\n", b"[]\n", b"x" * 2**20 + b"\n"]
)
def test_what_strangers_say_ends_their_connection_and_nothing_else(said: bytes) -> None:
    with serving() as server:
        where = (server.address, server.port)
        with socket.create_connection(where, 5) as stranger, stranger.makefile("rb") as heard:
            assert set(json.loads(heard.readline())) == {"nonce"}
            # What a server leaves unread when it closes comes back as a reset.
            with contextlib.suppress(OSError):
                stranger.sendall(said)
                stranger.shutdown(socket.SHUT_WR)
                assert heard.read() == b""
        with servers(server) as ends:
            assert ends.listen({("b", "a"): ORDER}, 5).failures == {}


def test_a_server_that_is_gone_is_named_and_holds_up_no_other() -> None:
    with serving() as gone:
        pass
    with serving() as there, servers(gone, there) as ends:
        answers = ends.listen({("x", "a"): ORDER, ("y", "b"): ORDER}, 5)
    assert list(answers.found) == [("y", "b")]
    assert f"the probe server of a at 127.0.0.1:{gone.port}" in answers.failures["x", "a"]


def test_a_rail_that_a_node_does_not_have_is_refused_with_those_it_has() -> None:
    with serving() as server, servers(server) as ends:
        order = ORDER.model_copy(update={"rail": 3})
        answers = ends.listen({("b", "a"): order}, 5)
    assert answers.failures["b", "a"] == "no NIC for rail 3; this node has 1: 127.0.0.1"


def test_the_program_says_where_it_listens_and_needs_a_token() -> None:
    command = [sys.executable, "-m", "railweave.agents.probe_server", "--nic", "127.0.0.1"]
    env = {k: v for k, v in os.environ.items() if k != TOKEN}
    refused = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert f"no token: give --token-file or set {TOKEN}" in refused.stderr
    started = subprocess.Popen(
        [*command, "--port", "0"], env={**env, TOKEN: SECRET}, stdout=subprocess.PIPE, text=True
    )
    assert started.stdout
    try:
        where = json.loads(started.stdout.readline())
        with ProbeServers({"a": (where["host"], where["port"])}, SECRET) as ends:
            assert ends.listen({("b", "a"): ORDER}, 10).failures == {}
    finally:
        started.kill()
        started.wait()
        started.stdout.close()


def test_a_short_token_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 16"):
        ProbeServer([HERE], "short", port=0)


def nic(name: str, rdma: str | None = None, state: LinkState = LinkState.UP) -> Nic:
    return Nic(name=name, state=state, rdma_device=rdma)


NICS = (nic("eth0"), nic("ib0", "mlx5_0"), nic("ib1", "mlx5_1"), nic("ib2", "m", LinkState.DOWN))
ADDRESSES = {"eth0": ["10.0.0.1"], "ib0": ["10.1.0.1"], "ib1": ["10.2.0.1"], "ib2": ["10.3.0.1"]}


def test_rails_are_rdma_nics_with_an_address_or_those_that_are_named() -> None:
    found = rail_nics("10.0.0.1", "", NICS, ADDRESSES)
    assert [(each.device, each.address) for each in found] == [
        ("ib0", "10.1.0.1"),
        ("ib1", "10.2.0.1"),
    ]
    named = rail_nics("10.0.0.1", "ib1, eth0", NICS, ADDRESSES)
    assert [each.device for each in named] == ["ib1", "eth0"]
    assert rail_nics("10.0.0.1", "", NICS[:2], ADDRESSES) == (NicAddress(address="10.0.0.1"),)


def test_a_named_nic_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(InvalidInput, match=r"ib7.*is not there.*eth0, ib0, ib1, ib2"):
        rail_nics("10.0.0.1", "ib7", NICS, ADDRESSES)
