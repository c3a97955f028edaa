"""Reading and writing Railweave's own file formats: safe YAML or JSON in, pydantic models out."""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ValidationError

from .errors import InvalidInput, Problem
from .explained import problems_of, shown

Model = TypeVar("Model", bound=BaseModel)

_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper: type[yaml.SafeDumper] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_MERGE = "tag:yaml.org,2002:merge"

# What plain YAML text means, as in YAML 1.2: by the older rules that PyYAML follows, a node named
# 0010 would be 8, one named 12:30 would be 750, one named "no" would be false, and 25e9 is text.
_PLAIN = (
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"0|-?[1-9][0-9]*", "-0123456789"),
    (
        "float",
        r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?|-?\.[0-9]+(?:[eE][-+]?[0-9]+)?"
        r"|-?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-.0123456789",
    ),
    ("merge", r"<<", "<"),
)


def _use_plain_rules(kind: type[yaml.SafeLoader] | type[yaml.SafeDumper]) -> None:
    kind.yaml_implicit_resolvers = {}
    for name, pattern, first in _PLAIN:
        letters: list[str | None] = ["" if letter == "\0" else letter for letter in first]
        tag = f"tag:yaml.org,2002:{name}"
        kind.add_implicit_resolver(tag, re.compile(f"^(?:{pattern})$"), letters)


class _UniqueKeyLoader(_Loader):  # type: ignore[misc, valid-type]
    """Safe YAML that refuses a key given twice, where plain YAML keeps the last one silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            try:
                repeated = key in seen
            except TypeError as error:
                raise yaml.constructor.ConstructorError(
                    None, None, "a key must be text or a number", key_node.start_mark
                ) from error
            if repeated:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is given twice", key_node.start_mark
                )
            seen.add(key)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


class PlainLoader(_Loader):  # type: ignore[misc, valid-type]
    """Safe YAML of foreign files, which may give a key twice: the last one counts."""


class _PlainDumper(_Dumper):  # type: ignore[misc, valid-type]
    """Safe YAML that quotes what the loader above would not read back as text."""


_use_plain_rules(_UniqueKeyLoader)
_use_plain_rules(PlainLoader)
_use_plain_rules(_PlainDumper)


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    for key, value in pairs:
        if key in mapping:
            raise ValueError(f"the key {key!r} is given twice in one object")
        mapping[key] = value
    return mapping


def parse_text(text: str, source: str) -> Any:
    """Plain data from JSON or YAML text; `source` names it in errors.

    Raises InvalidInput with the line when the text is neither.
    """
    if text.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(text, object_pairs_hook=_unique_pairs)
        except json.JSONDecodeError as error:
            json_problem = Problem(
                f"line {error.lineno} column {error.colno}",
                f"not JSON: {error.msg}",
                "mend the text there",
            )
        except (ValueError, RecursionError) as error:
            json_problem = Problem(
                "", f"not usable JSON: {error}", "keep each key once, nested plainly"
            )
        if not text.lstrip().startswith("{") or '"format"' in text:
            raise InvalidInput(source, [json_problem])
    try:
        return yaml.load(text, Loader=_UniqueKeyLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1} column {mark.column + 1}" if mark else ""
        found = f"not YAML: {error.problem or error.context or 'it cannot be read'}"
        raise InvalidInput(source, [Problem(place, found, "mend the text there")]) from error
    except Exception as error:
        # The constructors of YAML's own types raise whatever they trip over.
        found = f"not YAML: {type(error).__name__} {str(error)[:200]}".strip()
        problem = Problem("", found, "give plain YAML or JSON text")
        raise InvalidInput(source, [problem]) from error


def read_data(path: str | os.PathLike[str]) -> Any:
    """Plain data of a JSON or YAML file. Raises InvalidInput when it cannot be read or parsed."""
    source = os.fspath(path)
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        problem = Problem(f"byte {error.start}", "not UTF-8 text", "save it as UTF-8 YAML or JSON")
        raise InvalidInput(source, [problem]) from error
    except (OSError, ValueError) as error:
        found = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        raise InvalidInput(
            source, [Problem("", found, "give the path of a readable file")]
        ) from error
    return parse_text(text, source)


def validated(model: type[Model], data: Any, source: str, expected_format: str) -> Model:
    """`data` as a `model`, with every fault named by its place in the file.

    Raises InvalidInput listing all problems, not only the first.
    """
    if not isinstance(data, Mapping):
        kind = "nothing" if data is None else type(data).__name__
        raise InvalidInput(
            source,
            [Problem("", f"holds {kind}, not an object", f"start with format: {expected_format}")],
        )
    found = data.get("format")
    if found != expected_format:
        have = "no format" if found is None else f"format {shown(found)}"
        raise InvalidInput(source, [Problem("format", have, f"this must be {expected_format!r}")])
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise InvalidInput(source, problems_of(error, model)) from error


def without_notes(data: Any) -> Any:
    """`data` without the keys that start with `x-`, which are the author's own notes."""
    if isinstance(data, Mapping):
        return {k: v for k, v in data.items() if not (isinstance(k, str) and k.startswith("x-"))}
    return data


Notes = BeforeValidator(without_notes)
"""Lets the author of a file keep notes in the object so annotated."""


def write_text_atomically(path: str | os.PathLike[str], text: str) -> None:
    """Write a file so that a reader sees the old text or the new one, never a part.

    A link is followed, and a file that exists keeps its mode. What is no plain file, such as
    /dev/null or a pipe, is written into and never replaced. Raises OSError that names `path`.
    """
    target = Path(os.path.realpath(path))
    try:
        mode = _mode_of(path)
        if mode is not None and not stat.S_ISREG(mode):
            Path(path).write_text(text, encoding="utf-8")
            return
        temporary = target.parent / f".{target.name[:64]}.{secrets.token_hex(4)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        handle = os.open(temporary, flags, 0o666)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                if mode is not None:
                    os.fchmod(handle, stat.S_IMODE(mode))
                stream.write(text)
                stream.flush()
                os.fsync(handle)
            os.replace(temporary, target)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
    except OSError as error:
        # It may name the temporary file, which nobody has heard of.
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def _mode_of(path: str | os.PathLike[str]) -> int | None:
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None


def dump(data: Any, path: str | os.PathLike[str]) -> None:
    """Write plain data as YAML when the name ends in .yaml or .yml, as JSON otherwise."""
    if Path(path).suffix in (".yaml", ".yml"):
        text = yaml.dump(
            data, Dumper=_PlainDumper, sort_keys=False, default_flow_style=None, width=120
        )
    else:
        text = json.dumps(data, allow_nan=False, indent=1) + "\n"
    write_text_atomically(path, text)
