"""A counterexample as a sequence diagram: the process, its stores and its providers, incarnation by incarnation."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from pytest_once.faults import duration
from pytest_once.reporting import drawing

MOST_STEPS = 60
"""Steps of one incarnation that are drawn, besides its end."""

_FIRST, _APART, _TOP = 96.0, 250.0, 64.0
_BESIDE = 190.0
"""Room to the right of the last lane, for what happens there."""
_STORES = {"file": "files", "process": "other programs", "smtp": "mail"}
_WITHIN = frozenset({"point", "choice", "caller", "contract", "call", "tool"})


def drawn(story: Sequence[Mapping[str, Any]], name: str) -> str:
    """The story of a violation of the document as SVG; "" for an empty one. name: unique in the page."""
    if not story:
        return ""
    diagram = _Diagram(_lanes(story), name)
    for life in story:
        diagram.life(life)
    return diagram.finished()


def _lane(step: Mapping[str, Any]) -> str | None:
    """Whom a step speaks to; None if it is the process's own business."""
    if step["provider"] is not None:
        return str(step["provider"])
    kind, target = step["kind"], str(step["target"])
    if kind in _WITHIN:
        return None
    return _STORES.get(kind, target.partition(" ")[0])


def _lanes(story: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """(name, kind) of each lane but the process's: stores first, then providers, as they are met."""
    stores: dict[str, None] = {}
    providers: dict[str, None] = {}
    for life in story:
        for step in life["steps"]:
            lane = _lane(step)
            if lane is not None:
                (providers if step["provider"] is not None else stores).setdefault(lane)
    return [*((name, "store") for name in stores if name not in providers), *((name, "provider") for name in providers)]


@dataclass(slots=True)
class _Diagram:
    lanes: list[tuple[str, str]]
    name: str
    y: float = _TOP
    ended: float = 0.0
    bands: list[str] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    @property
    def width(self) -> float:
        return _FIRST + len(self.lanes) * _APART + (_BESIDE if self.lanes else 300.0)

    def at(self, lane: str) -> float:
        return _FIRST + (1 + [name for name, _ in self.lanes].index(lane)) * _APART

    def finished(self) -> str:
        heads = [("process", "process", _FIRST)]
        heads += [(name, kind, self.at(name)) for name, kind in self.lanes]
        top: list[str] = [
            f"<defs>{drawing.arrow_head(f'{self.name}-arrow', 'head')}"
            f"{drawing.arrow_head(f'{self.name}-fault', 'head fault')}</defs>"
        ]
        for name, kind, x in heads:
            width = min(_APART - 30, max(84.0, len(name) * 7.2 + 26))
            top.append(drawing.box(x - width / 2, 8, width, 34, f"lane {kind}"))
            top.append(drawing.words(x, 22 if name != kind else 29, name, "name", width=width - 8, anchor="middle"))
            if name != kind:
                top.append(drawing.words(x, 36, kind, "small", anchor="middle"))
            if kind != "process":
                top.append(drawing.line(x, 42, x, self.y, "life"))
        title = f"Sequence diagram of the counterexample; lanes: {', '.join(name for name, _, _ in heads)}"
        parts = [*self.bands, *top, *self.lines, *self.parts]
        return drawing.svg(self.width, self.y + 12, title, parts, name=self.name, css="sequence")

    # -- one incarnation -----------------------------------------------------------------------------

    def life(self, life: Mapping[str, Any]) -> None:
        waited = f"{duration(life['after_s'])} later: " if life["after_s"] else ""
        begin = self.y
        steps = life["steps"]
        if life["between"]:
            self.parts.append(
                drawing.words(16, self.y + 18, f"{waited}{life['ending']}", "note", width=self.width - 32)
            )
            self.y += 28
            self._effects(life["effects"])
            self.y += 8
            return
        self.parts.append(drawing.words(18, self.y + 20, f"{waited}incarnation {life['incarnation']}", "band-name"))
        self.y += 34
        killed_here = life["killed"] and steps and "before" in life["ending"]
        done = steps[:-1] if killed_here else steps
        for step, times in _folded(done)[:MOST_STEPS]:
            self._step(step, times)
        if len(_folded(done)) > MOST_STEPS:
            self._note(_FIRST, f"… {len(_folded(done)) - MOST_STEPS} more steps, see the text", "note")
        self._end(life, steps[-1] if killed_here else None)
        self.lines.append(drawing.line(_FIRST, begin + 30, _FIRST, self.ended, "life process"))
        self.bands.append(drawing.box(6, begin + 2, self.width - 12, self.y - begin - 4, "band", radius=8))
        self.y += 8

    def _step(self, step: Mapping[str, Any], times: int) -> None:
        for what in step["arrived"]:
            self._note(_FIRST, f"! {what}", "fault")
        self._effects(step["arrived_effects"])
        lane = _lane(step)
        repeated = f"  (×{times})" if times > 1 else ""
        place = _place(step["site"])
        caption = f"<title>{escape(step['target'])}{escape(repeated)} {escape(place)}</title>"
        if lane is None:
            self.parts.append(f"<g>{caption}{drawing.cross(_FIRST, self.y + 10, 0.1, 'dot')}")
            self.parts.append(
                drawing.words(_FIRST + 12, self.y + 14, f"{step['target']}{repeated}", "label", width=self.width - 120)
            )
            self.parts.append(drawing.words(_FIRST + 12, self.y + 28, place, "place") + "</g>")
            self.y += 38
        else:
            x, provider = self.at(lane), step["provider"] is not None
            label = str(step["target"]).removeprefix(f"{lane} ") + repeated
            room = x - _FIRST - 20
            self.parts.append(f"<g>{caption}")
            self.parts.append(drawing.words(_FIRST + 12, self.y + 12, label, "label", width=room))
            self.parts.append(
                drawing.line(
                    _FIRST,
                    self.y + 18,
                    x - 2,
                    self.y + 18,
                    "call" if provider else "call store",
                    arrow=f"{self.name}-arrow",
                )
            )
            self.parts.append(drawing.words(_FIRST + 12, self.y + 31, place, "place", width=room) + "</g>")
            self.y += 40
        if step["chosen"] is not None:
            self._note(_FIRST, f"> {step['chosen']}", "note")
        self._effects(step["effects"], _FIRST if lane is None else self.at(lane))
        if step["fault"] is not None:
            self._fault(step["fault"], _FIRST if lane is None else self.at(lane))

    def _fault(self, fault: Mapping[str, Any], x: float) -> None:
        if x > _FIRST:
            middle = (x + _FIRST) / 2
            self.parts.append(drawing.line(x, self.y + 6, middle + 8, self.y + 6, "answer fault"))
            self.parts.append(drawing.cross(middle, self.y + 6, 5, "cut fault"))
            self.y += 8
        self._note(_FIRST, f"! {fault['name']}: {fault['told']}", "fault")

    def _effects(self, effects: Sequence[Mapping[str, Any]], x: float | None = None) -> None:
        for one in effects:
            key = one["key"]
            at = x
            if at is None:
                known = [name for name, _ in self.lanes]
                at = self.at(key["provider"]) if key["provider"] in known else _FIRST
            text = f"effect {one['count']}"
            caption = f"effect number {one['count']}: {key['name']} ({key['provider']} {key['operation']})"
            css = "effect" if one["count"] == 1 else "effect more"
            y = self.y - 34
            self.parts.append(
                f"<g><title>{escape(caption)}</title>{drawing.box(at + 10, y, 66, 20, css, radius=10)}"
                f"{drawing.words(at + 43, y + 14, text, 'badge', anchor='middle')}"
                f"{drawing.words(at + 10, y + 34, key['name'], 'place', width=_BESIDE - 20)}</g>"
            )
            self.y += 4

    def _end(self, life: Mapping[str, Any], before: Mapping[str, Any] | None) -> None:
        self.ended = y = self.y + 8
        if life["killed"]:
            where = life["ending"]
            self.parts.append(drawing.cross(_FIRST, y, 7, "cut kill"))
            said = f"SIGKILL: {where}"
            place = _place(before["site"]) if before is not None else ""
            self.parts.append(drawing.words(_FIRST + 16, y + 4, said, "kill", width=self.width - 140))
            if place:
                self.parts.append(drawing.words(_FIRST + 16, y + 18, place, "place"))
                self.y += 10
        else:
            self.parts.append(drawing.box(_FIRST - 6, y - 6, 12, 12, "end", radius=2))
            self.parts.append(drawing.words(_FIRST + 16, y + 4, life["ending"], "label", width=self.width - 140))
        self.y += 32

    def _note(self, x: float, text: str, css: str) -> None:
        said = drawing.words(x + 12, self.y + 14, text, css, width=self.width - 130)
        self.parts.append(f"<g><title>{escape(text)}</title>{said}</g>")
        self.y += 24


def _folded(steps: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], int]]:
    """Steps with how often each comes in a row."""
    folded: list[tuple[Mapping[str, Any], int]] = []
    for step in steps:
        if folded and folded[-1][0] == step:
            folded[-1] = (step, folded[-1][1] + 1)
        else:
            folded.append((step, 1))
    return folded


def _place(site: Mapping[str, Any] | None) -> str:
    return "" if site is None else f"{os.path.basename(site['file'])}:{site['line']}"
