"""Writing SVG text: escaped, styled for light and dark pages, without scripts or ids."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import Literal

Theme = Literal["auto", "light", "dark"]

SCOPE = "railweave-drawing"
# Advance of an average character of a sans-serif face, in em; text is fitted with it unmeasured.
CHARACTER_EM = 0.56
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
# What XML cannot hold, control characters, and those that turn the reading order around.
_UNPRINTABLE = re.compile(
    "[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)

_LIGHT = {
    "bg": "fill:#ffffff",
    "box0": "fill:#f3f5f8;stroke:#d5dae1",
    "box1": "fill:#ffffff;stroke:#d5dae1",
    "box2": "fill:#f7f9fb;stroke:#dde2e8",
    "node": "fill:#ffffff;stroke:#c3cad4",
    "bar": "fill:#dfe5ee;stroke:#b9c3d0",
    "upbar": "fill:#e2ddf3;stroke:#beb4de",
    "t": "fill:#1c2128",
    "m": "fill:#5b6572",
    "link": "stroke:#aab4c1",
    "free": "fill:#a9d3c1",
    "busy": "fill:#aeb6c1",
    "drained": "fill:#e8c468",
    "faulty": "fill:#d9534f",
    "off-free": "fill:#eceff3",
    "off-busy": "fill:#d3d8df",
    "off-drained": "fill:#fbf1d8;stroke:#d3a429",
    "off-faulty": "fill:#fbe9e8;stroke:#d9534f",
    "warn": "fill:#b86e00",
    "bad": "fill:#c3312d",
    "warnline": "stroke:#d98a00",
    "badline": "stroke:#d33a36",
    "flow": "stroke:#c2410c",
    "flowfill": "fill:#c2410c",
}
_DARK = {
    "bg": "fill:#11151b",
    "box0": "fill:#181e26;stroke:#303945",
    "box1": "fill:#1e252f;stroke:#364150",
    "box2": "fill:#232b36;stroke:#3a4553",
    "node": "fill:#1a212a;stroke:#465262",
    "bar": "fill:#2c3744;stroke:#4a586a",
    "upbar": "fill:#393354;stroke:#5d5484",
    "t": "fill:#e8ecf1",
    "m": "fill:#9aa6b4",
    "link": "stroke:#5a6878",
    "free": "fill:#3f8f74",
    "busy": "fill:#5d6774",
    "drained": "fill:#a87f1f",
    "faulty": "fill:#d9534f",
    "off-free": "fill:#2c3540",
    "off-busy": "fill:#48525f",
    "off-drained": "fill:#2c2719;stroke:#a87f1f",
    "off-faulty": "fill:#3a2224;stroke:#d9534f",
    "warn": "fill:#f0b243",
    "bad": "fill:#ff7b74",
    "warnline": "stroke:#e9a62f",
    "badline": "stroke:#f2655f",
    "flow": "stroke:#fb8a4c",
    "flowfill": "fill:#fb8a4c",
}
_COMMON = {
    "t1": "font-size:19px;font-weight:600",
    "t2": "font-size:13px",
    "t3": "font-size:11px",
    "t4": "font-size:9px",
    "b": "font-weight:600",
    "mid": "text-anchor:middle",
    "end": "text-anchor:end",
    "line": "fill:none",
}
_TEN = (
    "#4a7fb5",
    "#ee8a2e",
    "#4f9f55",
    "#8d6bb8",
    "#35a3a3",
    "#c9a227",
    "#c2628f",
    "#8a6a52",
    "#7a93ab",
    "#96a43c",
)
_RAMP = (
    (58, 76, 162),
    (48, 148, 190),
    (72, 170, 110),
    (214, 176, 54),
    (222, 108, 52),
    (176, 52, 92),
)


class Svg:
    """A drawing under construction. Coordinates and sizes are in pixels, y grows downwards."""

    def __init__(self) -> None:
        self._parts: list[str] = []

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        classes: str,
        *,
        radius: float = 0,
        fill: str = "",
        tip: str = "",
    ) -> None:
        """A rectangle; `tip` shows when the pointer rests on it."""
        rounding = f' rx="{_n(radius)}"' if radius else ""
        style = f' style="fill:{fill}"' if fill else ""
        self._element(
            f'rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}"'
            f"{rounding}{_class(classes)}{style}",
            f"<title>{clean(tip)}</title>" if tip else "",
        )

    def line(
        self,
        points: Iterable[tuple[float, float]],
        classes: str,
        *,
        width: float = 1.0,
        stroke: str = "",
        tip: str = "",
    ) -> None:
        """A line through points."""
        style = f' style="stroke:{stroke}"' if stroke else ""
        where = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        self._element(
            f'polyline points="{where}"{_class("line " + classes)} '
            f'stroke-width="{_n(width)}"{style}',
            f"<title>{clean(tip)}</title>" if tip else "",
        )

    def arc(
        self,
        start: tuple[float, float],
        end: tuple[float, float],
        lift: float,
        classes: str,
        *,
        width: float,
        tip: str = "",
    ) -> None:
        """A curve from start to end that rises `lift` above them."""
        (x1, y1), (x2, y2) = start, end
        top = min(y1, y2) - lift * 4 / 3
        path = f"M{_n(x1)} {_n(y1)}C{_n(x1)} {_n(top)} {_n(x2)} {_n(top)} {_n(x2)} {_n(y2)}"
        self._element(
            f'path d="{path}"{_class("line " + classes)} stroke-width="{_n(width)}" '
            'stroke-opacity="0.75"',
            f"<title>{clean(tip)}</title>" if tip else "",
        )

    def text(
        self, x: float, y: float, text: str, classes: str = "t t3", *, fill: str = "", tip: str = ""
    ) -> None:
        """Text with its baseline at y."""
        style = f' style="fill:{fill}"' if fill else ""
        title = f"<title>{clean(tip)}</title>" if tip else ""
        body = f"{title}{clean(text)}"
        self._element(f'text x="{_n(x)}" y="{_n(y)}"{_class(classes)}{style}', body)

    def render(
        self, width: float, height: float, title: str, description: str, theme: Theme = "auto"
    ) -> str:
        """The whole drawing as SVG text. Theme "auto" follows the reader's light or dark page."""
        w, h = _n(width), _n(height)
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" class="{SCOPE}" viewBox="0 0 {w} {h}" '
                f'width="{w}" height="{h}" role="img" font-family="{FONT}">',
                f"<title>{clean(title)}</title>",
                f"<desc>{clean(description)}</desc>",
                f"<style>{_stylesheet(theme)}</style>",
                f'<rect width="{w}" height="{h}" rx="8" class="bg"/>',
                *self._parts,
                "</svg>",
                "",
            ]
        )

    def _element(self, opening: str, body: str) -> None:
        name = opening.split(" ", 1)[0]
        self._parts.append(f"<{opening}>{body}</{name}>" if body else f"<{opening}/>")


def clean(text: str) -> str:
    """Text as it may stand in SVG: escaped, and only what can be shown."""
    return escape(printable(text), quote=True)


def printable(text: str) -> str:
    """Text with a mark in place of every character that cannot be shown or would mislead."""
    return _UNPRINTABLE.sub("\ufffd", text)


def fitted(text: str, width: float, size: float = 11) -> str:
    """`text` shortened in its middle to fit `width` pixels at a font size; "" when nothing fits."""
    most = int(width / (size * CHARACTER_EM))
    if len(text) <= most:
        return text
    if most < 3:
        return ""
    return f"{text[: most // 2]}…{text[len(text) - (most - most // 2 - 1) :]}"


def text_width(text: str, size: float = 11) -> float:
    """About how wide text is, in pixels."""
    return len(text) * size * CHARACTER_EM


def bytes_text(count: float) -> str:
    """A number of bytes for people: `12.3 GB` (SI)."""
    return _scaled(count, "B")


def rate_text(bytes_per_s: float) -> str:
    """A link rate as network people give it: `200 Gb/s`."""
    return _scaled(bytes_per_s * 8, "b/s")


def plural(count: int, thing: str) -> str:
    """`1 node`, `2,000 nodes`."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def colours(count: int) -> list[str]:
    """Colours readable on light and dark: distinct up to ten, beyond that a ramp in order."""
    if count <= len(_TEN):
        return list(_TEN[:count])
    found = []
    for number in range(count):
        position = number / (count - 1) * (len(_RAMP) - 1)
        left = min(int(position), len(_RAMP) - 2)
        part = position - left
        mixed = [
            round(a + (b - a) * part) for a, b in zip(_RAMP[left], _RAMP[left + 1], strict=True)
        ]
        found.append("#{:02x}{:02x}{:02x}".format(*mixed))
    return found


def ink_on(colour: str) -> str:
    """Black or white, whichever reads better on a colour `#rrggbb`."""
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return "#14181d" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#ffffff"


def _scaled(value: float, unit: str) -> str:
    prefixes = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")
    power = 0
    while abs(value) >= 999.5 and power < len(prefixes) - 1:
        value, power = value / 1000, power + 1
    return f"{value:.3g} {prefixes[power]}{unit}"


def _stylesheet(theme: Theme) -> str:
    base = _rules(_COMMON)
    if theme == "dark":
        return base + _rules(_DARK)
    if theme == "light":
        return base + _rules(_LIGHT)
    return f"{base}{_rules(_LIGHT)}@media (prefers-color-scheme:dark){{{_rules(_DARK)}}}"


def _rules(styles: dict[str, str]) -> str:
    return "".join(f".{SCOPE} .{name}{{{style}}}" for name, style in styles.items())


def _class(classes: str) -> str:
    return f' class="{classes}"' if classes else ""


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
