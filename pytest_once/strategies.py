"""Hypothesis strategies for what this project knows: fault kinds, schedules, and payloads as providers get them.

Each shrinks towards the simplest: no fault, no crash, an empty object.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, overload

from hypothesis import strategies as st

from pytest_once import faults as kinds
from pytest_once import inherited
from pytest_once.once import Once
from pytest_once.positions import FaultAt, LifeByPosition, Rehearsal, ScheduleByPosition
from pytest_once.scenario import ScenarioError, seconds

__all__ = ["faults", "payloads", "schedules"]

GROUPS: dict[str, tuple[str, ...]] = {
    "call": kinds.CALL_FAULTS,
    "http": kinds.HTTP_FAULTS,
    "late": kinds.LATE_FAULTS,
    "store": kinds.STORE_FAULTS,
    "work": kinds.WORK_FAULTS,
    "standard": kinds.STANDARD_FAULTS,
    "all": tuple(kinds.KINDS),
}
"""Fault kinds by what fails: calls, HTTP requests, requests held up, commits, a provider's own work; and by profile."""

inherited.watch()


def faults(*groups: str) -> st.SearchStrategy[str]:
    """Names of fault kinds, such as "lost-response".

    groups: "call", "http", "late", "store", "work", "standard" (what the profile of that name uses), "all"; without
    any, all. Shrinks towards the first of them. Raises ValueError for an unknown group.
    """
    for group in groups:
        if group not in GROUPS:
            raise ValueError(f"faults({group!r}): no such group; valid: {', '.join(GROUPS)}")
    return st.sampled_from(list(dict.fromkeys(fault for group in groups or ("all",) for fault in GROUPS[group])))


_BIGGEST = 2**53 - 1
"""The biggest whole number that every JSON reader keeps."""

_AWKWARD_TEXTS = (
    *("", " ", "0", "null", "O'Brien", 'say "yes"', "\\", "a/b?c=d&e", "x" * 300),
    *("Zoë", "Zoe\u0308", "日本", "🧾", "\u200b"),
)
_EDGES = (0, 1, -1, 10, 99, 100, 999_999_99, 2**31 - 1, 2**31, 2**32, _BIGGEST, -_BIGGEST)


def payloads(*, amount: str | None = "amount", depth: int = 2) -> st.SearchStrategy[dict[str, Any]]:
    """JSON objects as providers get them: amounts, awkward texts, edge numbers, nested objects and lists.

    Every value survives JSON: written, read and written again canonically it is the same text. No lone surrogates, no
    NaN, no whole number that JavaScript would round. amount: name of a field that is always there and holds a whole
    number of cents from 1; None for none. depth: how deep objects and lists may nest. Shrinks towards {"amount": 1}.
    """
    texts = st.text(max_size=12) | st.sampled_from(_AWKWARD_TEXTS)
    whole = st.integers(-_BIGGEST, _BIGGEST) | st.sampled_from(_EDGES)
    fractions = st.decimals(-10_000, 10_000, places=2, allow_nan=False, allow_infinity=False).map(float)
    values: st.SearchStrategy[Any] = st.none() | st.booleans() | whole | texts | fractions
    names = st.text(
        st.characters(codec="ascii", categories=("Ll", "Nd"), include_characters="_"), min_size=1, max_size=8
    )
    for _ in range(depth):
        values = values | st.lists(values, max_size=3) | st.dictionaries(names, values, max_size=3)
    fields = st.dictionaries(names, values, max_size=4)
    if amount is None:
        return fields
    cents = st.integers(1, 100) | st.sampled_from([edge for edge in _EDGES if edge > 0])
    return st.builds(lambda others, value: {**others, amount: value}, fields, cents)


@overload
def schedules(
    body: None = None,
    *,
    crashes: int = ...,
    soft_faults: int = ...,
    faults: Sequence[str] = ...,
    delays: Sequence[str | float] = ...,
    boundaries: int = ...,
) -> st.SearchStrategy[ScheduleByPosition]: ...


@overload
def schedules(
    body: Callable[[Once], Any],
    *,
    crashes: int = ...,
    soft_faults: int = ...,
    faults: Sequence[str] = ...,
    delays: Sequence[str | float] = ...,
    boundaries: int | None = ...,
    **marker: Any,
) -> st.SearchStrategy[str]: ...


def schedules(
    body: Callable[[Once], Any] | None = None,
    *,
    crashes: int = 2,
    soft_faults: int = 1,
    faults: Sequence[str] = kinds.STANDARD_FAULTS,
    delays: Sequence[str | float] = (0,),
    boundaries: int | None = None,
    **marker: Any,
) -> Any:
    """Schedules of crashes, soft faults, late arrivals and waits.

    With a body (as `explore` takes it; marker: further arguments of `once_effect`): ids of schedules that fit it, for
    `replay(body, id)` to judge. The body is recorded when the first one is drawn, and lived for each, so that every
    planned fault happens; after the disturbed lives it lives on until it has ended and was delivered once more.

    Without: ScheduleByPosition, to fit to any body; the same one may meet several.

    crashes: most lives that are disturbed. soft_faults: most in each of them. faults: kinds to choose from. delays:
    what may pass before a restart ("0s", "25h", seconds). boundaries: greatest number of a boundary to crash at; from
    the recording if a body is given.
    Shrinks towards fewer disturbed lives, earlier crashes, fewer faults.
    """
    waits = [seconds(delay) for delay in delays]
    for fault in faults:
        if fault not in kinds.KINDS:
            raise ScenarioError(f"fault kind {fault!r} is unknown; valid: {', '.join(kinds.KINDS)}")
    if body is None:
        return _by_position(crashes, soft_faults, tuple(faults), waits, 8 if boundaries is None else boundaries)
    rehearsed = _Rehearsed(body, marker)

    def fitting() -> st.SearchStrategy[str]:
        rehearsal = rehearsed.rehearsal()
        most = len(rehearsal.boundaries) if boundaries is None else boundaries
        there = {fault for boundary in rehearsal.boundaries for fault in boundary.faults}
        possible = tuple(fault for fault in faults if fault in there)
        return _by_position(crashes, soft_faults, possible, waits, most).map(lambda drawn: str(rehearsal.fit(drawn)))

    return st.deferred(fitting)


def _by_position(
    crashes: int, soft_faults: int, faults: tuple[str, ...], waits: list[float], boundaries: int
) -> st.SearchStrategy[ScheduleByPosition]:
    at = st.builds(FaultAt, st.sampled_from(faults), st.integers(0, 2)) if faults else st.nothing()
    failing = st.lists(at, max_size=soft_faults if faults else 0, unique=True).map(tuple)
    held = any(kinds.KINDS[fault].held for fault in faults)
    life = st.builds(
        LifeByPosition,
        crash=st.none() | st.integers(0, boundaries),
        faults=failing,
        after_s=st.sampled_from(waits),
        arrives=st.none() | st.integers(0, 1) if held else st.none(),
    )
    return st.builds(ScheduleByPosition, st.lists(life, max_size=crashes).map(tuple))


class _Rehearsed:
    """A body and its rehearsal, made when it is first needed and kept for as long as the strategy."""

    def __init__(self, body: Callable[[Once], Any], marker: dict[str, Any]) -> None:
        self._body = body
        self._marker = marker
        self._rehearsal: Rehearsal | None = None

    def rehearsal(self) -> Rehearsal:
        if self._rehearsal is None:
            self._rehearsal = Rehearsal(self._body, self._marker)
            weakref.finalize(self, self._rehearsal.close)
        return self._rehearsal
