"""HTML pages out of templates: single files that need nothing else, with every name escaped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ..placement.drawing.svg import printable


def render_page(template: str, filters: dict[str, Callable[..., Any]], **values: Any) -> str:
    """The page that a template makes of these values. A name it lacks is an error."""
    environment = Environment(
        loader=PackageLoader("railweave.scheduler", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters
    return environment.get_template(template).render(**values)


def _shown(value: Any) -> Any:
    """What an expression of the template becomes: unshowable characters are made visible."""
    if value is None:
        return "–"
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable(value)
    return value
