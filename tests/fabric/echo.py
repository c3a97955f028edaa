"""A crew's work for a test: say the arguments and the address it is on."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> None:
    """Print what was given and this host's address, then wait to be ended."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        asker.connect(("10.255.255.255", 9))
        print(*arguments, asker.getsockname()[0])
    threading.Event().wait()
