"""Where the daemon and the controllers write what they do."""

from __future__ import annotations

import logging
import sys
import time
from logging.handlers import RotatingFileHandler
from pathlib import Path

_FILE_BYTES = 8 * 2**20
_FILES = 4


def write_log(path: Path | None = None) -> None:
    """Send Railweave's log lines to standard error, which Ray keeps, and to a file when given.

    Times are UTC, as those of the nodes are compared with each other.
    """
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    if path is not None:
        handlers.append(RotatingFileHandler(path, maxBytes=_FILE_BYTES, backupCount=_FILES))
    form = logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s")
    form.datefmt = "%Y-%m-%dT%H:%M:%S"
    form.converter = time.gmtime
    logger = logging.getLogger("railweave")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    for handler in handlers:
        handler.setFormatter(form)
        logger.addHandler(handler)
