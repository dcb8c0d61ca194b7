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

    code: two letters for schedule ids. arrivals: requests that reach the provider at once. effect: whether what was
    asked is done although the caller may not hear so. held: copies of the request that stay on their way.
    story: what a report says.
    """

    name: str
    code: str
    arrivals: int
    effect: bool
    story: str
    held: int = 0


_KINDS = (
    FaultKind("refused", "rf", 0, False, "the connection is refused; the request never arrives"),
    FaultKind("lost-request", "lq", 0, False, "the request is lost on its way; the caller sees a time-out"),
    FaultKind("lost-response", "lr", 1, True, "the provider acts, the response is lost; the caller sees a time-out"),
    FaultKind("reset-response", "rr", 1, True, "the provider acts, the connection is reset before the response"),
    FaultKind("error-before", "eb", 0, False, "an error status comes back, and the provider did not act"),
    FaultKind("error-after", "ea", 1, True, "the provider acts, and an error status comes back"),
    FaultKind("duplicate", "du", 2, True, "the request is delivered twice; the caller sees one response"),
    FaultKind("late", "la", 0, False, "the request is held up; the caller sees a time-out, and it may arrive later", 1),
    FaultKind("late-copy", "lc", 1, True, "the provider acts and answers; a copy of it is still on its way", 1),
    FaultKind("late-twice", "lt", 0, False, "the request is held up and doubled; the caller sees a time-out", 2),
    FaultKind("stale-read", "sr", 0, False, "the answer is from before the latest change (a replica, a lagging index)"),
    FaultKind("store-busy", "sb", 0, False, "the store is busy: an error, nothing applied, the transaction stays open"),
    FaultKind("store-full", "sf", 0, False, "the store is full: an error, nothing applied"),
    FaultKind("store-readonly", "so", 0, False, "the store has become read-only: an error, nothing applied"),
    FaultKind("commit-unknown", "cu", 0, True, "an error is reported although the change is applied"),
    FaultKind("still-working", "sw", 1, False, "the provider is still at work on it; the caller sees a time-out", 1),
    FaultKind("failed-inside", "fi", 1, False, "the provider fails with 500 after it took the key, and did not act"),
    FaultKind("declined", "dc", 1, False, "the provider understands the request and declines it"),
)
KINDS: dict[str, FaultKind] = {kind.name: kind for kind in _KINDS}
_BY_CODE = {kind.code: kind for kind in _KINDS}

REFUSED, LOST_REQUEST, LOST_RESPONSE, RESET_RESPONSE, ERROR_BEFORE, ERROR_AFTER, DUPLICATE = tuple(KINDS)[:7]
LATE, LATE_COPY, LATE_TWICE, STALE_READ, STORE_BUSY, STORE_FULL, STORE_READONLY, COMMIT_UNKNOWN = tuple(KINDS)[7:15]
STILL_WORKING, FAILED_INSIDE, DECLINED = tuple(KINDS)[15:]

CALL_FAULTS: tuple[str, ...] = (REFUSED, LOST_REQUEST, LOST_RESPONSE, RESET_RESPONSE, DUPLICATE)
"""Soft faults of a call that answers with a value or an exception."""
HTTP_FAULTS: tuple[str, ...] = tuple(KINDS)[:7]
"""Soft faults of an HTTP request: a call's, and error statuses."""
LATE_FAULTS: tuple[str, ...] = (LATE, LATE_COPY, LATE_TWICE)
"""Soft faults of a request that a provider can hold and receive later (`Ledger.hold`)."""
STORE_FAULTS: tuple[str, ...] = (STORE_BUSY, STORE_FULL, STORE_READONLY, COMMIT_UNKNOWN)
"""Soft faults of a store's commit: bookkeeping that fails, or says so."""
WORK_FAULTS: tuple[str, ...] = (STILL_WORKING, FAILED_INSIDE, DECLINED)
"""Soft faults of a provider's work, where its contract makes a difference of them."""

STANDARD_FAULTS: tuple[str, ...] = HTTP_FAULTS
"""What the standard profile explores, one per incarnation; `deep` explores every kind."""

OPTION = "option"
"""What the environment chooses at a `once.choose`: in a plan "option:2", in a schedule id "o2"; the first is 0."""
DELIVER = "deliver"
"""A request on its way arrives, or accepted work ends: in a plan "deliver:1" (the oldest), in a schedule id "d1".

Where that may go several ways, "deliver:1:2" and "d1.2" are the third of them; the first is 0 and not written."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """The number-th oldest request on its way arrives (1 is the oldest), and goes the way of that number."""

    number: int
    way: int = 0

    def __str__(self) -> str:
        return f"d{self.number}.{self.way}" if self.way else f"d{self.number}"

    @property
    def step(self) -> str:
        """As a plan has it."""
        return f"{DELIVER}:{self.number}:{self.way}" if self.way else f"{DELIVER}:{self.number}"

    @staticmethod
    def of(step: str) -> Delivery:
        """From a plan's step."""
        number, _, way = step.partition(":")[2].partition(":")
        return Delivery(int(number), int(way or 0))


def told_as(fault: str) -> str:
    """What a report says of a planned fault, option or delivery."""
    name, _, number = fault.partition(":")
    if name == OPTION:
        return f"option {number} is chosen"
    if name == DELIVER:
        return "a request that was still on its way arrives now, or accepted work ends"
    return KINDS[name].story


def duration(seconds: float) -> str:
    """A time as a person would say it: "2 h", "90 s"."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g} {unit}"
    return f"{seconds:g} s"


def _code_of(fault: str) -> str:
    name, _, number = fault.partition(":")
    if name == DELIVER:
        return str(Delivery.of(fault))
    return f"o{number}" if name == OPTION else KINDS[name].code


class ScheduleError(ValueError):
    """A schedule id that cannot be read; the message says which part and what is expected."""


def mark_of(boundary: Boundary) -> str:
    """Six hex digits which name a boundary in a schedule id."""
    return hashlib.blake2s(boundary.anchor.encode(), digest_size=3).hexdigest()


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """What happens at the boundary with this mark: a soft fault, once or for the rest of the life; or before it a
    delivery; or which option is chosen there."""

    fault: str
    mark: str
    lasting: bool = False

    def __str__(self) -> str:
        code = _code_of(self.fault)
        return f"{code.upper() if self.lasting else code}@{self.mark}"


END = "end"
"""Crash point after the last boundary: the process dies before anybody hears that it has finished."""


@dataclass(frozen=True, slots=True)
class LifePlan:
    """What happens to one incarnation.

    crash: mark of the boundary before which it is killed, END, or None to leave it alone.
    after_s: seconds that pass before it starts, besides the restart itself. deliver: not a life at all, but the
    arrival of a request that was on its way (1: the oldest) while no process lives. asleep: the crash comes at the
    beginning of the wait that leads to its boundary, so that less time has passed.
    """

    faults: tuple[PlannedFault, ...] = ()
    crash: str | None = None
    after_s: float = 0.0
    deliver: Delivery | None = None
    asleep: bool = False

    def __str__(self) -> str:
        # Not %g: an exponent's "+" would be read as the next step.
        parts = ["w" + f"{self.after_s:.6f}".rstrip("0").rstrip(".")] if self.after_s else []
        parts += [str(self.deliver)] if self.deliver else []
        parts += [str(fault) for fault in self.faults]
        if self.crash is not None:
            parts.append(f"{'z' if self.asleep else 'x'}@{self.crash}")
        return "+".join(parts) or "."


_STEP = re.compile(r"(?P<code>[a-z]{2}|[A-Z]{2}|o\d+|d\d+(\.\d+)?|[xz])@(?P<mark>[0-9a-f]{6}|end)")
_DELIVERY = re.compile(r"d(?P<number>[1-9]\d*)(\.(?P<way>\d+))?")
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
        """Faults, choices other than the first, and late arrivals."""
        return sum(len(life.faults) + bool(life.deliver) for life in self.lives)

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
    deliver: Delivery | None = None
    asleep = False
    for step in part.split("+") if part != "." else ():
        if wait := _WAIT.fullmatch(step):
            after_s = float(wait["seconds"])
            continue
        if delivery := _DELIVERY.fullmatch(step):
            deliver = Delivery(int(delivery["number"]), int(delivery["way"] or 0))
            continue
        match = _STEP.fullmatch(step)
        fault = None if match is None else _fault_of(match["code"])
        if match is None or crash is not None or (fault is None and match["code"] not in "xz"):
            codes = ", ".join(f"{kind.code}={kind.name}" for kind in _KINDS)
            raise ScheduleError(
                f"cannot read {step!r} in schedule id {whole!r}: a step is x@MARK (crash, last in its life; "
                "z@MARK: while it waits before that) "
                f"or CODE@MARK with CODE one of {codes} (capitals: for the rest of the life), o2 (the option chosen "
                "there) or d1 (the request that arrives); d1 alone is an arrival while no process lives"
            )
        if fault is None:
            crash, asleep = match["mark"], match["code"] == "z"
        else:
            faults.append(PlannedFault(fault, match["mark"], match["code"].isupper()))
    return LifePlan(tuple(faults), crash, after_s, deliver, asleep)


def _fault_of(code: str) -> str | None:
    if code[0] == "o" and code[1:].isdecimal():
        return f"{OPTION}:{code[1:]}"
    if delivery := _DELIVERY.fullmatch(code):
        return Delivery(int(delivery["number"]), int(delivery["way"] or 0)).step
    kind = _BY_CODE.get(code.lower())
    return None if kind is None else kind.name
