"""A crew's work for a test: say a word and the address from which another is reached."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> None:
    """Print the word and this host's address towards the one given; then wait to be ended."""
    word, towards = arguments
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
        asker.connect((towards, 9))
        print(word, asker.getsockname()[0])
    threading.Event().wait()
