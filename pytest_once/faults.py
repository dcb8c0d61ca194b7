"""Fault kinds, schedules and their printable ids.

A schedule is a list of lives (incarnations). A life has planned soft faults and an end: killed at a crash
point, or left alone until it ends by itself. Its id survives unrelated edits, because it names boundaries by
anchor (kind, target, function, line text, occurrence), not by number.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from pytest_once.boundaries import Boundary


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A way the world fails a call while the process survives.

    code: two letters for schedule ids. effect: whether the provider acts. arrivals: requests that reach it.
    story: what a report says.
    """

    name: str
    code: str
    arrivals: int
    effect: bool
    story: str


_KINDS = (
    FaultKind("refused", "rf", 0, False, "the connection is refused; the request never arrives"),
    FaultKind("lost-request", "lq", 0, False, "the request is lost on its way; the caller sees a time-out"),
    FaultKind("lost-response", "lr", 1, True, "the provider acts, the response is lost; the caller sees a time-out"),
    FaultKind("reset-response", "rr", 1, True, "the provider acts, the connection is reset before the response"),
    FaultKind("error-before", "eb", 0, False, "an error status comes back, and the provider did not act"),
    FaultKind("error-after", "ea", 1, True, "the provider acts, and an error status comes back"),
    FaultKind("duplicate", "du", 2, True, "the request is delivered twice; the caller sees one response"),
)
KINDS: dict[str, FaultKind] = {kind.name: kind for kind in _KINDS}
_BY_CODE = {kind.code: kind for kind in _KINDS}

REFUSED, LOST_REQUEST, LOST_RESPONSE, RESET_RESPONSE, ERROR_BEFORE, ERROR_AFTER, DUPLICATE = KINDS
CALL_FAULTS: tuple[str, ...] = (REFUSED, LOST_REQUEST, LOST_RESPONSE, RESET_RESPONSE, DUPLICATE)
"""Soft faults of a call that answers with a value or an exception."""
HTTP_FAULTS: tuple[str, ...] = tuple(KINDS)
"""Soft faults of an HTTP request: a call's, and error statuses."""


class ScheduleError(ValueError):
    """A schedule id that cannot be read; the message says which part and what is expected."""


def mark_of(boundary: Boundary) -> str:
    """Six hex digits which name a boundary in a schedule id."""
    return hashlib.blake2s(boundary.anchor.encode(), digest_size=3).hexdigest()


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One soft fault of one life: at the boundary with this mark, once or for the rest of the life."""

    fault: str
    mark: str
    lasting: bool = False

    def __str__(self) -> str:
        code = KINDS[self.fault].code
        return f"{code.upper() if self.lasting else code}@{self.mark}"


END = "end"
"""Crash point after the last boundary: the process dies before anybody hears that it has finished."""


@dataclass(frozen=True, slots=True)
class LifePlan:
    """What happens to one incarnation.

    crash: mark of the boundary before which it is killed, END, or None to leave it alone.
    after_s: seconds that pass before it starts, besides the restart itself.
    """

    faults: tuple[PlannedFault, ...] = ()
    crash: str | None = None
    after_s: float = 0.0

    def __str__(self) -> str:
        # Not %g: an exponent's "+" would be read as the next step.
        parts = ["w" + f"{self.after_s:.6f}".rstrip("0").rstrip(".")] if self.after_s else []
        parts += [str(fault) for fault in self.faults]
        if self.crash is not None:
            parts.append(f"x@{self.crash}")
        return "+".join(parts) or "."


_STEP = re.compile(r"(?P<code>[a-z]{2}|[A-Z]{2}|x)@(?P<mark>[0-9a-f]{6}|end)")
_WAIT = re.compile(r"w(?P<seconds>\d+(\.\d+)?)")


@dataclass(frozen=True, slots=True)
class Schedule:
    """The faults of one run, life by life. `str()` is its id; `Schedule.parse(id)` gives it back."""

    lives: tuple[LifePlan, ...]

    def __str__(self) -> str:
        return "/".join(str(life) for life in self.lives)

    @property
    def crashes(self) -> int:
        return sum(life.crash is not None for life in self.lives)

    @property
    def soft_faults(self) -> int:
        return sum(len(life.faults) for life in self.lives)

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """Read an id as printed in a report. Raises ScheduleError."""
        if not text.strip():
            raise ScheduleError("a schedule id is empty; copy it from the line 'replay:' of a report")
        return cls(tuple(_parse_life(part, text) for part in text.strip().split("/")))


def _parse_life(part: str, whole: str) -> LifePlan:
    faults: list[PlannedFault] = []
    crash: str | None = None
    after_s = 0.0
    for step in part.split("+") if part != "." else ():
        if wait := _WAIT.fullmatch(step):
            after_s = float(wait["seconds"])
            continue
        match = _STEP.fullmatch(step)
        kind = None if match is None else _BY_CODE.get(match["code"].lower())
        if match is None or crash is not None or (kind is None and match["code"] != "x"):
            codes = ", ".join(f"{kind.code}={kind.name}" for kind in _KINDS)
            raise ScheduleError(
                f"cannot read {step!r} in schedule id {whole!r}: a step is x@MARK (crash, last in its life) "
                f"or CODE@MARK with CODE one of {codes} (capitals: for the rest of the life)"
            )
        if kind is None:
            crash = match["mark"]
        else:
            faults.append(PlannedFault(kind.name, match["mark"], match["code"].isupper()))
    return LifePlan(tuple(faults), crash, after_s)
