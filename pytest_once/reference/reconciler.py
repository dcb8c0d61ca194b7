"""The reconciler: decides UNKNOWN intents by asking the provider what it did. Run it on a schedule.

First the exact look-up, by key or reference. What that finds was executed. What it does not find was not executed only
if nothing of it can be on its way or invisible any more; before that, and where nobody knows how long that is, "not
found" proves nothing. What stays open goes to a person, with whatever looks like it.
"""

from __future__ import annotations

import functools
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, TypeVar

from pytest_once.reference import people, transitions
from pytest_once.reference.databases import AsyncDatabase, Database
from pytest_once.reference.flows import Call, Flow, Transact, drive, drive_async
from pytest_once.reference.promise import NOTHING, Promise
from pytest_once.reference.steps import Statement, Steps
from pytest_once.reference.transitions import COLUMNS, Stored, stored

D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class Sought:
    """What a look-up is asked for. Instants in seconds since 1970.

    intent_id: also the key that was sent. payload: decoded JSON. sent_since, sent_until: when requests may have left.
    """

    intent_id: str
    tool: str
    payload: Any
    fingerprint: str
    sent_since: float
    sent_until: float


@dataclass(frozen=True, slots=True)
class Found:
    """Something the provider has done. result: what becomes the receipt, JSON.

    fields: effect-bearing fields as the payload names them, where the provider tells them; with other values than the
    payload's it is no confirmation, but a case for a person.
    """

    result: Any
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """How one tool's provider is asked; plain or coroutine functions, which raise if it does not answer.

    exact: everything with exactly this key or reference; None if the provider cannot be asked so. candidates: what
    looks like it by business fields (amount, recipient, time), as JSON for a person; never proof.
    """

    exact: Callable[[Sought], Any] | None = None
    candidates: Callable[[Sought], Any] | None = None


class Judgement(StrEnum):
    """WAITING: undecidable yet, ask again later. UNDECIDABLE: no look-up will ever tell."""

    EXECUTED = "executed"
    NOT_EXECUTED = "not executed"
    WAITING = "waiting"
    UNDECIDABLE = "undecidable"


@dataclass(frozen=True, slots=True)
class Judged:
    """reason: one sentence, for the intent and for people."""

    judgement: Judgement
    reason: str
    result: Any = None


def judge(sought: Sought, answer: Sequence[Found] | Exception | None, promise: Promise, asked_at: float) -> Judged:
    """What an answer proves. answer: None if there is no exact look-up. asked_at: before the look-up was sent."""
    if answer is None:
        reason = "the provider has no exact look-up"
        if promise.resend_is_safe(sought.sent_since, asked_at):
            return Judged(Judgement.WAITING, f"{reason}, but a resend under the same key will tell")
        return Judged(Judgement.UNDECIDABLE, reason)
    if isinstance(answer, Exception):
        return Judged(Judgement.WAITING, f"the look-up failed ({type(answer).__name__}: {answer})")
    if len(answer) > 1:
        return Judged(Judgement.UNDECIDABLE, f"the provider has done it {len(answer)} times")
    if answer:
        found = answer[0]
        if other := [name for name, value in found.fields.items() if sought.payload.get(name) != value]:
            return Judged(
                Judgement.UNDECIDABLE,
                f"the provider has something else under this identity: {', '.join(other)} differs",
            )
        return Judged(Judgement.EXECUTED, "the look-up found it", found.result)
    proven_at = promise.absence_proven_at(sought.sent_until)
    if asked_at >= proven_at:
        return Judged(Judgement.NOT_EXECUTED, "not found, and nothing of it can be on its way or invisible any more")
    if proven_at == math.inf and not promise.resend_is_safe(sought.sent_since, asked_at):
        return Judged(
            Judgement.UNDECIDABLE,
            "not found, but nobody knows how long a request may be on its way or an effect invisible",
        )
    return Judged(Judgement.WAITING, "not found, which proves nothing yet")


@dataclass(slots=True)
class Round:
    """What one round came to: intent ids by judgement. asked: those newly put to a person. expired: leases ended."""

    expired: int = 0
    executed: list[str] = field(default_factory=list)
    not_executed: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    undecidable: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


class _Reconciler(Generic[D]):
    """Arguments of both reconcilers: lookups, promises: by tool. patience_s: how long to wait for an answer before a
    person is asked as well. page: intents read at a time. clock: seconds since 1970.
    """

    def __init__(
        self,
        database: D,
        lookups: Mapping[str, Lookup],
        *,
        promises: Mapping[str, Promise] | None = None,
        patience_s: float = 3600.0,
        page: int = 100,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.database = database
        self.lookups = dict(lookups)
        self.promises = dict(promises or {})
        self.patience_s = patience_s
        self.page = page
        self.clock = clock

    def _round(self) -> Flow[Round]:
        round_ = Round()
        while expired := (yield Transact(transitions.expire(self.clock(), self.page))):
            round_.expired += expired
        after = (-math.inf, "")
        while unknown := (yield Transact(undecided(after, self.page))):
            for found in unknown:
                yield from self._one(found, round_)
            after = (unknown[-1].unknown_since or 0.0, unknown[-1].intent_id)
        return round_

    def _one(self, found: Stored, round_: Round) -> Flow[None]:
        sought = _sought(found)
        lookup = self.lookups.get(found.tool, Lookup())
        asked_at = self.clock()
        answer = None if lookup.exact is None else _usable((yield from _ask_provider(lookup.exact, sought)))
        judged = judge(sought, answer, self.promises.get(found.tool, NOTHING), asked_at)
        if judged.judgement in (Judgement.EXECUTED, Judgement.NOT_EXECUTED):
            if (yield Transact(_decide(found, judged, self.clock()))):
                done = judged.judgement is Judgement.EXECUTED
                (round_.executed if done else round_.not_executed).append(found.intent_id)
            return
        if judged.judgement is Judgement.WAITING:
            round_.waiting.append(found.intent_id)
            if asked_at - (found.unknown_since or asked_at) < self.patience_s:
                return
        else:
            round_.undecidable.append(found.intent_id)
        candidates: Any = ()
        if lookup.candidates is not None:
            candidates = yield from _ask_provider(lookup.candidates, sought)
        if (yield Transact(_ask_person(found, judged.reason, _readable(candidates), self.clock()))):
            round_.asked.append(found.intent_id)


def _ask_provider(function: Callable[[Sought], Any], sought: Sought) -> Flow[Any]:
    try:
        return (yield Call(functools.partial(function, sought)))
    except Exception as error:
        return error


def _usable(answer: Any) -> Sequence[Found] | Exception:
    """What a look-up says. Anything but a list of Found proves nothing: an empty error body is no absence."""
    if isinstance(answer, Exception):
        return answer
    if not isinstance(answer, (list, tuple)) or not all(isinstance(one, Found) for one in answer):
        return TypeError(f"it returned {answer!r:.100}, and not a list of Found")
    try:
        json.dumps([one.result for one in answer], allow_nan=False)
    except (TypeError, ValueError) as error:
        return TypeError(f"what it found has a result that is no JSON value: {error}")
    return answer


def _readable(candidates: Any) -> list[Any]:
    """Candidates for a person; why there are none, if they cannot be shown."""
    trouble = f"{type(candidates).__name__}: {candidates}" if isinstance(candidates, Exception) else ""
    if not trouble and not isinstance(candidates, (list, tuple)):
        trouble = f"{candidates!r:.100} is no list"
    if not trouble:
        try:
            json.dumps(candidates)
        except (TypeError, ValueError) as error:
            trouble = f"they are no JSON: {error}"
    return [{"candidates could not be looked up": trouble}] if trouble else list(candidates)


def _sought(found: Stored) -> Sought:
    since, until = found.sent_since or 0.0, found.sent_until or 0.0
    return Sought(found.intent_id, found.tool, json.loads(found.payload), found.fingerprint, since, until)


def undecided(after: tuple[float, str], limit: int) -> Steps[list[Stored]]:
    """UNKNOWN intents in the order of their age; after: age (unknown_since) and id of the last one seen."""
    rows = yield Statement(
        f"SELECT {COLUMNS} FROM gate_intents WHERE state = 'UNKNOWN' AND (unknown_since, intent_id) > (?, ?) "
        "ORDER BY unknown_since, intent_id LIMIT ?",
        (*after, limit),
    )
    return [stored(row) for row in rows]


def _decide(found: Stored, judged: Judged, now: float) -> Steps[bool]:
    executed = judged.judgement is Judgement.EXECUTED
    result = json.dumps(judged.result, separators=(",", ":"), ensure_ascii=False) if executed else None
    return (yield from transitions.decide(found, executed, result, "look-up", judged.reason, now))


def _ask_person(found: Stored, reason: str, candidates: list[Any], now: float) -> Steps[bool]:
    current = yield from transitions.read(found.intent_id)
    if current is None or current.state is not found.state or current.attempts != found.attempts:
        return False
    return (yield from people.ask(found, reason, candidates, now))


class Reconciler(_Reconciler[Database]):
    """For synchronous look-ups. Several at once are harmless: each decision is a compare-and-set."""

    def run(self) -> Round:
        """Look at every UNKNOWN intent once, those whose lease has ended included."""
        return drive(self.database, self._round())


class AsyncReconciler(_Reconciler[AsyncDatabase]):
    """For coroutine functions as look-ups, too."""

    async def run(self) -> Round:
        """As Reconciler.run."""
        return await drive_async(self.database, self._round())
