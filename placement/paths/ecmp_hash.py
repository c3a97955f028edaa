"""How a switch picks an equal-cost uplink for a connection: examples of the hashes in use.

A hash here is any function from a `FiveTuple` to an uplink's number, 0 to uplinks - 1, or None when
it is not known for that tuple. A switch's own function is rarely published: record what it does
with a path trace (`RecordedHash`), or write it as a function like the ones below. Where switches
use different seeds, the function can look the seed up by the source address.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from typing import Final, NamedTuple

UDP: Final = 17
ROCE_PORT: Final = 4791
"""UDP port on which every RoCEv2 receiver listens (IANA; InfiniBand annex A17)."""


class FiveTuple(NamedTuple):
    """What a switch hashes; addresses are packed, 4 bytes (IPv4) or 16 (IPv6)."""

    source: bytes
    destination: bytes
    protocol: int
    source_port: int
    destination_port: int


UplinkHash = Callable[[FiveTuple], int | None]
"""A hash may also have a method `by_port(any tuple of a connection)` that gives its uplinks as a
function of the source port, where that is quicker than one call for each tuple."""


def by_port(uplink_hash: UplinkHash, like: FiveTuple) -> Callable[[int], int | None]:
    """The uplink of a connection as a function of its source port; `like` is a tuple of it."""
    quick = getattr(uplink_hash, "by_port", None)
    if quick is not None:
        found: Callable[[int], int | None] = quick(like)
        return found
    source, destination, protocol, _, destination_port = like
    return lambda port: uplink_hash(
        FiveTuple(source, destination, protocol, port, destination_port)
    )


class Crc32Hash:
    """CRC-32 (IEEE 802.3) of addresses, protocol and ports in network order, modulo the uplinks.

    shift: low bits of the CRC left out. Another seed only flips bits, so switches one after another
        that use the same bits make dependent choices (polarisation); other bits do not.
    """

    def __init__(self, uplinks: int, seed: int = 0, shift: int = 0) -> None:
        self.uplinks = uplinks
        self.seed = seed
        self.shift = shift

    def __call__(self, tuple_: FiveTuple) -> int:
        source, destination, protocol, source_port, destination_port = tuple_
        numbers = protocol << 32 | source_port << 16 | destination_port
        data = source + destination + numbers.to_bytes(5, "big")
        return (zlib.crc32(data, self.seed) >> self.shift) % self.uplinks

    def by_port(self, like: FiveTuple) -> Callable[[int], int]:
        """The uplink by source port: what stands before the port is hashed once."""
        head = like.source + like.destination + like.protocol.to_bytes(1, "big")
        begun, tail = zlib.crc32(head, self.seed), like.destination_port.to_bytes(2, "big")
        crc32, shift, uplinks = zlib.crc32, self.shift, self.uplinks
        return lambda port: (crc32(port.to_bytes(2, "big") + tail, begun) >> shift) % uplinks


class XorHash:
    """All 16-bit words of addresses and ports and the protocol xor-ed, modulo the uplinks."""

    def __init__(self, uplinks: int, seed: int = 0) -> None:
        self.uplinks = uplinks
        self.seed = seed

    def __call__(self, tuple_: FiveTuple) -> int:
        source, destination, protocol, source_port, destination_port = tuple_
        folded = self.seed ^ protocol ^ source_port ^ destination_port
        folded ^= _folded(source) ^ _folded(destination)
        return (folded ^ folded >> 8) % self.uplinks

    def by_port(self, like: FiveTuple) -> Callable[[int], int]:
        """The uplink by source port: the rest is xor-ed once."""
        rest = self.seed ^ like.protocol ^ like.destination_port
        rest ^= _folded(like.source) ^ _folded(like.destination)
        uplinks = self.uplinks
        return lambda port: ((rest ^ port) ^ (rest ^ port) >> 8) % uplinks


def _folded(address: bytes) -> int:
    value = int.from_bytes(address, "big")
    folded = 0
    while value:
        folded ^= value & 0xFFFF
        value >>= 16
    return folded


TOEPLITZ_KEY: Final = bytes.fromhex(
    "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa"
)
"""The key of Microsoft's verification suite for receive-side scaling, a common default."""


class ToeplitzHash:
    """The Toeplitz hash of receive-side scaling over addresses and ports, modulo the uplinks.

    The protocol is not hashed. Source: Microsoft, "RSS hashing functions".
    """

    def __init__(self, uplinks: int, key: bytes = TOEPLITZ_KEY) -> None:
        if len(key) < 40:
            raise ValueError(f"a Toeplitz key has 40 bytes for IPv6 tuples; this has {len(key)}")
        self.uplinks = uplinks
        bits = int.from_bytes(key, "big")
        windows = [bits >> (len(key) * 8 - 32 - i) & 0xFFFFFFFF for i in range(len(key) * 8 - 31)]
        self._tables = [_byte_table(windows[8 * i : 8 * i + 8]) for i in range(36)]

    def value(self, tuple_: FiveTuple) -> int:
        """The whole 32-bit hash."""
        source, destination, _, source_port, destination_port = tuple_
        data = source + destination + (source_port << 16 | destination_port).to_bytes(4, "big")
        found = 0
        for table, byte in zip(self._tables, data, strict=False):
            found ^= table[byte]
        return found

    def __call__(self, tuple_: FiveTuple) -> int:
        return self.value(tuple_) % self.uplinks

    def by_port(self, like: FiveTuple) -> Callable[[int], int]:
        """The uplink by source port: the hash is linear, so the rest is hashed once."""
        rest = self.value(like._replace(source_port=0))
        first = len(like.source) + len(like.destination)
        high, low = self._tables[first], self._tables[first + 1]
        uplinks = self.uplinks
        return lambda port: (rest ^ high[port >> 8] ^ low[port & 255]) % uplinks


def _byte_table(windows: list[int]) -> list[int]:
    table = []
    for byte in range(256):
        found = 0
        for bit in range(8):
            if byte & 0x80 >> bit:
                found ^= windows[bit]
        table.append(found)
    return table


class RecordedHash:
    """Uplinks as a path trace found them; None for a tuple that was not traced."""

    def __init__(self, uplink_of: dict[FiveTuple, int]) -> None:
        self._uplink_of = dict(uplink_of)

    @classmethod
    def from_rows(
        cls, rows: Iterable[tuple[str, str, int, int, int]], protocol: int = UDP
    ) -> RecordedHash:
        """From rows of (source, destination, source port, destination port, uplink).

        Raises ValueError when two rows give one tuple different uplinks.
        """
        found: dict[FiveTuple, int] = {}
        for source, destination, source_port, destination_port, uplink in rows:
            key = FiveTuple(
                packed(source), packed(destination), protocol, source_port, destination_port
            )
            if found.setdefault(key, uplink) != uplink:
                raise ValueError(
                    f"{source}:{source_port} -> {destination}:{destination_port} was traced over "
                    f"uplink {found[key]} and over uplink {uplink}; the path is not steady: "
                    "trace again, or switch off per-packet balancing"
                )
        return cls(found)

    def __call__(self, tuple_: FiveTuple) -> int | None:
        return self._uplink_of.get(tuple_)


def packed(address: str) -> bytes:
    """An IPv4 or IPv6 address as bytes in network order. Raises ValueError."""
    return ip_address(address).packed
