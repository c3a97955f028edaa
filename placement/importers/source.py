"""One file handed in for import: its text, and what it parses to as JSON, YAML or XML."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from ..errors import InvalidInput, Problem
from .documents import Documents, documents

MOST_BYTES = 256 * 2**20
"""Larger files are refused: the largest real one, a fabric of 100,000 ports, has about 60 MB."""
_STYLING = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass(frozen=True)
class Source:
    """A file by name and text. Line ends are `\\n`, terminal colours and a byte order mark gone."""

    name: str
    text: str

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Source:
        """The file at `path`. Raises InvalidInput when it cannot be read as text."""
        name = os.fspath(path)
        try:
            with open(path, "rb") as file:
                # Not by its size alone: a pipe or a device has none.
                big = os.fstat(file.fileno()).st_size > MOST_BYTES
                data = b"" if big else file.read(MOST_BYTES + 1)
        except (OSError, ValueError) as error:
            found = f"cannot be read: {getattr(error, 'strerror', None) or error}"
            problem = Problem("", found, "give the path of a readable file")
            raise InvalidInput(name, [problem]) from error
        if big or len(data) > MOST_BYTES:
            found = f"more than {MOST_BYTES} bytes, which is the most that is read"
            raise InvalidInput(name, [Problem("", found, "hand in a part of it")])
        return cls.of_bytes(name, data)

    @classmethod
    def of_bytes(cls, name: str, data: bytes) -> Source:
        """What the bytes of a file say. Raises InvalidInput when they are no text."""
        encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError as error:
            problem = Problem(f"byte {error.start}", "not UTF-8 text", "save it as UTF-8")
            raise InvalidInput(name, [problem]) from error
        if "\0" in text:
            where = f"byte {data.index(0) if encoding == 'utf-8-sig' else 0}"
            raise InvalidInput(name, [Problem(where, "not text: it holds a zero byte", "")])
        return cls.of_text(name, text)

    @classmethod
    def of_text(cls, name: str, text: str) -> Source:
        """A file that is text already."""
        plain = _STYLING.sub("", text.removeprefix("\ufeff"))
        return cls(name, plain.replace("\r\n", "\n").replace("\r", "\n"))

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """The lines without their ends; line n of the file is `lines[n - 1]`."""
        return tuple(self.text.split("\n"))

    @cached_property
    def json(self) -> Any:
        """The file as one JSON value; None where it is not JSON."""
        if self.text.lstrip()[:1] not in ("{", "["):
            return None
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):
            return None

    @cached_property
    def parsed(self) -> Documents:
        """The file as JSON or as YAML documents, or why it is neither."""
        return documents(self.text)

    @property
    def documents(self) -> tuple[Any, ...]:
        """The JSON value or the YAML documents that are mappings or lists; empty if neither."""
        return tuple(one for one in self.parsed.values if isinstance(one, dict | list))

    @cached_property
    def xml(self) -> Element | None:
        """The root element; None where the text is not XML or holds entities."""
        return self._xml if isinstance(self._xml, Element) else None

    @property
    def xml_problem(self) -> Problem | None:
        """Why the text is no XML that may be read, for a file that begins like XML."""
        return self._xml if isinstance(self._xml, Problem) else None

    @cached_property
    def _xml(self) -> Element | Problem | None:
        start = self.text.lstrip()
        if not start.startswith("<"):
            return None
        try:
            root: Element = fromstring(start.encode(), forbid_entities=True, forbid_external=True)
            return root
        except ParseError as error:
            line, column = error.position
            line += self.text[: len(self.text) - len(start)].count("\n")
            say = f"not XML: {str(error).partition(':')[0]}"
            return Problem(f"line {line} column {column + 1}", say, "hand in the whole file")
        except (DefusedXmlException, ValueError, LookupError, RecursionError) as error:
            say = f"XML that is not read: {type(error).__name__} {error}"[:200]
            return Problem("", say, "remove entities and references to other files")

    def refuse(self, place: str, found: str, fix: str = "") -> InvalidInput:
        """An error on this file, to be raised."""
        return InvalidInput(self.name, [Problem(place, found, fix)])

    def line_of(self, text: str) -> str:
        """`line n` of the first line that holds `text`; "" where none does."""
        position = self.text.find(text)
        return f"line {self.text.count(chr(10), 0, position) + 1}" if position >= 0 else ""
