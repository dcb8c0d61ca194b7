"""SVG elements as text: lines, boxes and words that fit them. Colours come from the page's style sheet, by class."""

from __future__ import annotations

from html import escape

LETTER_PX = 6.4
"""Width of an average letter of 11 px in the fonts of the page, rather too much than too little."""


def words(x: float, y: float, text: str, css: str, *, width: float | None = None, anchor: str = "start") -> str:
    """A line of text whose baseline is at y. width: pixels it must fit into; it is cut with an ellipsis if needed."""
    shown = text if width is None else fitted(text, width)
    return f'<text x="{x:g}" y="{y:g}" class="{css}" text-anchor="{anchor}">{escape(shown)}</text>'


def fitted(text: str, width: float) -> str:
    """The text, cut so that it takes about so many pixels."""
    most = max(2, int(width / LETTER_PX))
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def line(x1: float, y1: float, x2: float, y2: float, css: str, *, arrow: str = "") -> str:
    """A straight line. arrow: id of the marker at its end."""
    head = f' marker-end="url(#{arrow})"' if arrow else ""
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" class="{css}"{head}/>'


def box(x: float, y: float, width: float, height: float, css: str, *, radius: float = 6) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}" class="{css}"/>'


def cross(x: float, y: float, size: float, css: str) -> str:
    """Two strokes: something ended here by force."""
    return (
        f'<path d="M{x - size:g} {y - size:g} L{x + size:g} {y + size:g} '
        f'M{x - size:g} {y + size:g} L{x + size:g} {y - size:g}" class="{css}"/>'
    )


def arrow_head(name: str, css: str) -> str:
    """The marker to end a line with."""
    return (
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        f'orient="auto-start-reverse"><path d="M0 0.5 L7.5 4 L0 7.5 z" class="{css}"/></marker>'
    )


def svg(width: float, height: float, title: str, parts: list[str], *, name: str, css: str) -> str:
    """The whole drawing at its natural size. title: what a person who does not see it is told."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" id="{name}" class="{css}" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(title)}">\n' + "\n".join(parts) + "\n</svg>"
    )
