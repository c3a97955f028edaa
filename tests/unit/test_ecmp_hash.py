"""Example hashes agree with published values; a recorded one says only what was traced."""

from __future__ import annotations

import zlib

import pytest
from railweave.placement.paths.ecmp_hash import (
    Crc32Hash,
    FiveTuple,
    RecordedHash,
    ToeplitzHash,
    UplinkHash,
    XorHash,
    by_port,
    packed,
)


def five_tuple(source: str, destination: str, source_port: int, port: int) -> FiveTuple:
    return FiveTuple(packed(source), packed(destination), 17, source_port, port)


# Microsoft, "Verifying the RSS hash calculation": destination, source, hash of IPv4 with ports.
MICROSOFT = [
    ("161.142.100.80", 1766, "66.9.149.187", 2794, 0x51CCC178),
    ("65.69.140.83", 4739, "199.92.111.2", 14230, 0xC626B0EA),
    ("12.22.207.184", 38024, "24.19.198.95", 12898, 0x5C2B394A),
    ("209.142.163.6", 2217, "38.27.205.30", 48228, 0xAFC7327F),
    ("202.188.127.2", 1303, "153.39.163.191", 44251, 0x10E828A2),
    ("3ffe:2501:200:3::1", 1766, "3ffe:2501:200:1fff::7", 2794, 0x40207D3D),
]


@pytest.mark.parametrize(("destination", "port", "source", "source_port", "expected"), MICROSOFT)
def test_toeplitz_matches_the_published_verification_suite(
    destination: str, port: int, source: str, source_port: int, expected: int
) -> None:
    assert ToeplitzHash(16).value(five_tuple(source, destination, source_port, port)) == expected


def test_toeplitz_refuses_a_key_too_short_for_ipv6() -> None:
    with pytest.raises(ValueError, match="this has 16"):
        ToeplitzHash(16, key=bytes(16))


def test_crc32_hashes_the_tuple_in_network_order() -> None:
    data = bytes([10, 0, 0, 1, 10, 0, 0, 2, 17, 0xC0, 0x00, 0x12, 0xB7])
    assert Crc32Hash(1 << 32)(five_tuple("10.0.0.1", "10.0.0.2", 0xC000, 4791)) == zlib.crc32(data)


def test_another_seed_of_a_crc_makes_the_same_choice_but_other_bits_do_not() -> None:
    tuples = [five_tuple("10.0.0.1", "10.0.0.2", port, 4791) for port in range(49152, 49408)]
    plain, seeded, shifted = Crc32Hash(2), Crc32Hash(2, seed=7), Crc32Hash(2, shift=16)
    assert len({(plain(t), seeded(t)) for t in tuples}) == 2
    assert len({(plain(t), shifted(t)) for t in tuples}) == 4


def test_xor_folds_every_field_once() -> None:
    found = XorHash(1 << 16)(five_tuple("10.0.0.1", "10.0.0.2", 0xC000, 4791))
    folded = 0x0A00 ^ 0x0001 ^ 0x0A00 ^ 0x0002 ^ 17 ^ 0xC000 ^ 4791
    assert found == folded ^ folded >> 8


def test_every_example_spreads_ports_over_all_uplinks() -> None:
    for hash_ in (Crc32Hash(12), XorHash(12), ToeplitzHash(12)):
        found = {hash_(five_tuple("10.1.2.3", "10.9.8.7", p, 4791)) for p in range(49152, 49408)}
        assert found == set(range(12))


def test_a_recorded_hash_answers_only_what_was_traced() -> None:
    recorded = RecordedHash.from_rows([("10.0.0.1", "10.0.0.2", 50000, 4791, 3)])
    assert recorded(five_tuple("10.0.0.1", "10.0.0.2", 50000, 4791)) == 3
    assert recorded(five_tuple("10.0.0.1", "10.0.0.2", 50001, 4791)) is None


def test_a_path_that_changes_between_traces_is_refused() -> None:
    rows = [("10.0.0.1", "10.0.0.2", 50000, 4791, uplink) for uplink in (3, 4)]
    with pytest.raises(ValueError, match=r"traced over uplink 3 and over uplink 4; .* not steady"):
        RecordedHash.from_rows(rows)


@pytest.mark.parametrize(
    "uplink_hash",
    [Crc32Hash(7), Crc32Hash(20, seed=9, shift=16), XorHash(12, seed=3), ToeplitzHash(20)],
)
@pytest.mark.parametrize(
    ("source", "destination"), [("10.0.0.1", "10.9.8.7"), ("fd00::1", "fd::9")]
)
def test_a_connections_uplinks_by_port_are_those_of_its_tuples(
    uplink_hash: UplinkHash, source: str, destination: str
) -> None:
    ends = packed(source), packed(destination)
    uplink = by_port(uplink_hash, FiveTuple(*ends, 17, 1, 4791))
    for port in (0, 1, 255, 256, 49152, 50001, 65535):
        assert uplink(port) == uplink_hash(FiveTuple(*ends, 17, port, 4791))
