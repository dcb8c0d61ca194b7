"""The explored graph as a drawing: states in columns by crashes, the lives between them, and what goes wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from pytest_once.reporting import drawing

MOST_STATES = 80
"""States that are drawn; of a larger graph those on the way to a violation, then the first ones."""
MOST_WAYS = 400

_WIDTH, _HEIGHT, _INDENT = 214.0, 42.0, 28.0
_COLUMN, _ROW, _TOP, _LEFT = 274.0, 58.0, 40.0, 12.0

_ONWARD = {
    "complete": "✓ completes",
    "escalated": "? escalates",
    "failed": "fails honestly",
    "violation": "✗ goes wrong",
    "loop": "↻ loops",
    "unknown": "? unknown",
}


@dataclass(frozen=True, slots=True)
class Picture:
    """svg: the drawing. left_out: how many states it does not show."""

    svg: str
    left_out: int


@dataclass(frozen=True, slots=True)
class _Box:
    """A state, or a violation. column, row: its place. caption: all that is known of it, for a person."""

    column: int
    row: int
    css: str
    head: str
    right: str
    below: str
    caption: str

    @property
    def x(self) -> float:
        return _LEFT + self.column * _COLUMN + (_WIDTH - self.width)

    @property
    def width(self) -> float:
        return _WIDTH - _INDENT if self.css == "bad" else _WIDTH

    @property
    def y(self) -> float:
        return _TOP + self.row * _ROW


def drawn(graph: Mapping[str, Any], name: str) -> Picture | None:
    """The graph of a test of the document, or None where nothing was explored. name: unique in the page."""
    states = {state["number"]: state for state in graph["states"]}
    if not states:
        return None
    parents = {way["target"]: way for way in graph["ways"] if way["shortest"]}
    shown = _chosen(graph, states, parents)
    boxes, wrong = _placed(graph, states, parents, shown)
    arrow = f"{name}-arrow"
    parts = [f"<defs>{drawing.arrow_head(arrow, 'head')}{drawing.arrow_head(f'{arrow}-bad', 'head bad')}</defs>"]
    drawn_boxes = [*boxes.values(), *(box for box, _ in wrong)]
    columns = max(box.column for box in drawn_boxes) + 1
    for column in range(columns):
        head = "no crash" if column == 0 else f"{column} crash{'es' * (column > 1)}"
        parts.append(drawing.words(_LEFT + column * _COLUMN, 22, head, "column"))
    ways = [way for way in graph["ways"] if way["source"] in boxes and way["target"] in boxes]
    ways.sort(key=lambda way: not way["shortest"])
    for way in reversed(ways[:MOST_WAYS]):
        parts.append(_way(boxes[way["source"]], boxes[way["target"]], way, arrow))
    for box, one in wrong:
        parts.append(_way(boxes[one["source"]], box, {**one, "target": one["verdict"], "shortest": True}, arrow))
    parts += [_drawn(box) for box in drawn_boxes]
    width = _LEFT + (columns - 1) * _COLUMN + _WIDTH + 50
    height = max(box.y for box in drawn_boxes) + _HEIGHT + 14
    left_out = len(states) - len(boxes) + graph["states_unlisted"]
    title = f"Explored graph: {len(boxes)} states in columns by number of crashes, {len(wrong)} ways to go wrong"
    return Picture(drawing.svg(width, height, title, parts, name=name, css="graph"), left_out)


def _chosen(graph: Mapping[str, Any], states: Mapping[int, Any], parents: Mapping[int, Mapping[str, Any]]) -> set[int]:
    shown: set[int] = set()
    for number in [*(wrong["source"] for wrong in graph["wrong"]), *states]:
        way = {number}
        while number in parents:
            number = parents[number]["source"]
            way.add(number)
        if len(shown | way) <= MOST_STATES:
            shown |= way
    return shown


def _placed(
    graph: Mapping[str, Any],
    states: Mapping[int, Any],
    parents: Mapping[int, Mapping[str, Any]],
    shown: set[int],
) -> tuple[dict[int, _Box], list[tuple[_Box, Mapping[str, Any]]]]:
    """Boxes for states by number, and for violations with what they show; each beside its parent or below its state."""
    free: dict[int, int] = {}
    boxes: dict[int, _Box] = {}
    wrong: list[tuple[_Box, Mapping[str, Any]]] = []

    def row(column: int, beside: int) -> int:
        taken = max(free.get(column, 0), beside)
        free[column] = taken + 1
        return taken

    columns = sorted({states[number]["crashes"] for number in shown})
    for column in columns:
        waiting = [number for number in shown if states[number]["crashes"] == column]
        waiting.sort(key=lambda number: (_row_of(parents, boxes, number), number))
        for number in _after_parents(waiting, parents):
            parent = boxes.get(parents[number]["source"]) if number in parents else None
            beside = parent.row if parent is not None and parent.column < column else 0
            boxes[number] = _state(states[number], parents.get(number), column, row(column, beside))
            found = [one for one in graph["wrong"] if one["source"] == number]
            wrong += [(_wrong(one, column, row(column, 0)), one) for one in found]
    return boxes, wrong


def _row_of(parents: Mapping[int, Mapping[str, Any]], boxes: Mapping[int, _Box], number: int) -> int:
    parent = boxes.get(parents[number]["source"]) if number in parents else None
    return 0 if parent is None else parent.row


def _after_parents(waiting: list[int], parents: Mapping[int, Mapping[str, Any]]) -> list[int]:
    """The same numbers, those whose parent is among them directly after it."""
    within = set(waiting)
    children: dict[int, list[int]] = {}
    for number in waiting:
        children.setdefault(parents[number]["source"] if number in parents else -1, []).append(number)
    order: list[int] = []
    stack = [n for n in reversed(waiting) if n not in parents or parents[n]["source"] not in within]
    while stack:
        number = stack.pop()
        order.append(number)
        stack += [child for child in reversed(children.get(number, [])) if child in within]
    return order


def _effects(state: Mapping[str, Any]) -> str:
    n = sum(one["count"] for one in state["effects"])
    return f"{n} effect{'s' * (n != 1)}" if n else "no effect yet"


def _state(state: Mapping[str, Any], way: Mapping[str, Any] | None, column: int, row: int) -> _Box:
    number, onward = state["number"], state["onward"]
    told = "the beginning" if way is None else way["told"]
    leads = f"→ {state['onward_state']}" if onward == "state" else _ONWARD.get(onward, "")
    after = "a life without faults then: " + (
        f"leads to state {state['onward_state']}" if onward == "state" else leads or "was not tried"
    )
    caption = (
        f"state {number}: {told}; {_effects(state)}; {state['crashes']} crashes, {state['faults']} soft faults; "
        f"{'delivered again after it had completed; ' if state['deliveries'] else ''}{after}"
        + (f"; schedule {state['schedule']}" if state["schedule"] else "")
    )
    css = {"complete": "good", "violation": "warn", "loop": "warn", "unknown": "warn"}.get(onward, "plain")
    return _Box(column, row, css, f"{number} · {_effects(state)}", leads, _short(told), caption)


def _wrong(one: Mapping[str, Any], column: int, row: int) -> _Box:
    key = one["key"]
    about = f" of {key['name']} ({key['provider']} {key['operation']})" if key is not None else ""
    lives = f"{one['lives']} lives" if one["lives"] > 1 else ""
    caption = f"{one['verdict']}{about}, after state {one['source']}: {one['told']}; step {one['step']}" + (
        f"; {one['lives']} different lives lead there from that state" if lives else ""
    )
    return _Box(column, row, "bad", one["verdict"], lives, _short(one["told"]), caption)


def _short(told: str) -> str:
    return told.replace("killed before ", "✗ ").replace("killed after its last boundary", "✗ after its last boundary")


def _drawn(box: _Box) -> str:
    inside = box.width - 20
    return (
        f'<g class="box {box.css}" data-caption="{escape(box.caption)}"><title>{escape(box.caption)}</title>'
        f"{drawing.box(box.x, box.y, box.width, _HEIGHT, 'frame')}"
        f"{drawing.words(box.x + 10, box.y + 17, box.head, 'name')}"
        f"{drawing.words(box.x + box.width - 10, box.y + 17, box.right, 'small', anchor='end')}"
        f"{drawing.words(box.x + 10, box.y + 33, box.below, 'small', width=inside)}</g>"
    )


def _way(source: _Box, target: _Box, way: Mapping[str, Any], arrow: str) -> str:
    x1, y1 = source.x + _WIDTH, source.y + _HEIGHT / 2
    x2, y2 = target.x, target.y + _HEIGHT / 2
    if target.css == "bad":
        path = f"M{source.x + _INDENT / 2:g} {source.y + _HEIGHT:g} V{y2:g} H{x2 - 2:g}"
    elif source is target:
        path = f"M{x1:g} {y1 - 8:g} c26 -14 26 30 2 16"
    elif source.column == target.column:
        bulge = 22 + min(30.0, abs(y2 - y1) / 12)
        x2 = target.x + _WIDTH
        path = f"M{x1:g} {y1:g} C{x1 + bulge:g} {y1:g} {x2 + bulge:g} {y2:g} {x2 + 2:g} {y2:g}"
    elif source.column < target.column:
        middle = (x2 - x1) / 2
        path = f"M{x1:g} {y1:g} C{x1 + middle:g} {y1:g} {x2 - middle:g} {y2:g} {x2 - 2:g} {y2:g}"
    else:
        x1, x2 = source.x, target.x + _WIDTH
        middle = (x1 - x2) / 2
        path = f"M{x1:g} {y1:g} C{x1 - middle:g} {y1:g} {x2 + middle:g} {y2:g} {x2 + 2:g} {y2:g}"
    bad = target.css == "bad"
    css = "way bad" if bad else "way" if way["shortest"] else "way other"
    caption = f"from state {way['source']} to {way['target']}: {way['told']}; step {way['step']}"
    return (
        f'<g class="{css}"><title>{escape(caption)}</title><path d="{path}" class="reach"/>'
        f'<path d="{path}" class="stroke" marker-end="url(#{arrow}{"-bad" * bad})"/></g>'
    )
