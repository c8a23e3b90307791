"""Drawings: SVG with escaped texts and attributes. Colours are CSS classes, so pages and reports share one style."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

from tocsin.report.markup import visible


def number(value: float) -> str:
    """Return a coordinate as text, rounded to a tenth of a pixel.

    >>> number(3.0), number(3.14159)
    ('3', '3.1')
    """
    return f"{value:.1f}".removesuffix(".0")


def fit_label(text: str, most: int = 26) -> str:
    """Return the label of a line or bar, cut to `most` characters.

    >>> fit_label("humidity", 4)
    'hum…'
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


class Drawing:
    """Drawing of a size in pixels. Screen readers read the `title`."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self._parts: list[Markup] = []

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        """Draw a straight line."""
        self._add("line", kind, x1=x1, y1=y1, x2=x2, y2=y2)

    def box(self, x: float, y: float, width: float, height: float, kind: str, hint: str = "") -> None:
        """Draw a rectangle. Browsers show the hint when the pointer rests on it."""
        self._add("rect", kind, hint, x=x, y=y, width=max(width, 0.0), height=height)

    def dot(self, x: float, y: float, radius: float, kind: str, hint: str = "") -> None:
        """Draw a circle."""
        self._add("circle", kind, hint, cx=x, cy=y, r=radius)

    def dots(self, points: Iterable[tuple[float, float]], kind: str) -> None:
        """Draw many small dots as one element: lines of length 0 with round ends."""
        steps = "".join(f"M{number(x)},{number(y)}h0" for x, y in points)
        if steps:
            self._parts.append(Markup('<path class="dots {}" d="{}"/>').format(kind, steps))

    def path(self, points: Iterable[tuple[float, float]], kind: str) -> None:
        """Draw a line through points."""
        steps = " ".join(f"{number(x)},{number(y)}" for x, y in points)
        if steps:
            self._parts.append(Markup('<polyline class="{}" points="{}"/>').format(kind, steps))

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> None:
        """Draw a text."""
        parts = (kind, number(x), number(y), anchor, visible(words))
        self._parts.append(Markup('<text class="{}" x="{}" y="{}" text-anchor="{}">{}</text>').format(*parts))

    def markup(self) -> Markup:
        """Return the drawing as HTML."""
        head = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">').format(
            self.width, self.height, visible(self.title)
        )
        return head + Markup("").join(self._parts) + Markup("</svg>")

    def _add(self, name: str, kind: str, hint: str = "", **places: float) -> None:
        inside = Markup(" ").join(Markup('{}="{}"').format(key, number(value)) for key, value in places.items())
        tag = Markup('<{} class="{}" {}').format(Markup(name), kind, inside)
        end = Markup("><title>{}</title></{}>").format(visible(hint), Markup(name)) if hint else Markup("/>")
        self._parts.append(tag + end)
