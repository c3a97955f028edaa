"""Reading and writing Railweave's own file formats: safe YAML or JSON in, pydantic models out."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from .errors import InvalidInput, Problem
from .explained import problems_of

Model = TypeVar("Model", bound=BaseModel)

_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _UniqueKeyLoader(_Loader):  # type: ignore[misc, valid-type]
    """Safe YAML that refuses a key given twice, where plain YAML keeps the last one silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
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
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = Problem("", f"not YAML: {error}", "give plain YAML or JSON text")
        raise InvalidInput(source, [problem]) from error


def read_data(path: str | os.PathLike[str]) -> Any:
    """Plain data of a JSON or YAML file. Raises InvalidInput when it cannot be read or parsed."""
    source = os.fspath(path)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        problem = Problem(f"byte {error.start}", "not UTF-8 text", "save it as UTF-8 YAML or JSON")
        raise InvalidInput(source, [problem]) from error
    except OSError as error:
        problem = Problem(
            "", f"cannot be read: {error.strerror}", "give the path of a readable file"
        )
        raise InvalidInput(source, [problem]) from error
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
        shown = "no format" if found is None else f"format {found!r}"
        raise InvalidInput(source, [Problem("format", shown, f"this must be {expected_format!r}")])
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise InvalidInput(source, problems_of(error, model)) from error


def without_notes(data: Any) -> Any:
    """`data` without the keys that start with `x-`, which are the author's own notes."""
    if isinstance(data, Mapping):
        return {k: v for k, v in data.items() if not (isinstance(k, str) and k.startswith("x-"))}
    return data


def write_text_atomically(path: str | os.PathLike[str], text: str) -> None:
    """Write a file so that a reader sees the old text or the new one, never a part."""
    target = Path(path)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def dump(data: Any, path: str | os.PathLike[str]) -> None:
    """Write plain data as YAML when the name ends in .yaml or .yml, as JSON otherwise."""
    if Path(path).suffix in (".yaml", ".yml"):
        text = yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=120)
    else:
        text = json.dumps(data, allow_nan=False, indent=1) + "\n"
    write_text_atomically(path, text)
