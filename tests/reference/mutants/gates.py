"""Mistakes around the gate: what lets it act twice, or lose what it knew."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from once_fakes import Contract, Provider
from pytest_once import Once, Verdict
from pytest_once.reference import reconciler, settlement, transitions
from pytest_once.reference.databases import SQLite
from pytest_once.reference.gate import Failed, Gate, GateUnreachable, InProgress, NotExecuted, Unknown
from pytest_once.reference.outcomes import Certainty, Outcome, of_exception
from pytest_once.reference.promise import Promise
from pytest_once.reference.reconciler import Judged, Judgement, Reconciler, Sought
from pytest_once.reference.steps import Statement, Steps
from pytest_once.reference.transitions import Attempt, State, Stored
from tests.reference.mutants.scenes import (
    AT_ONCE,
    BLIND,
    LEASE_S,
    PAYLOAD,
    REFUND,
    RETRIED,
    SEEN,
    Mutant,
    exact,
    keyed,
    plain,
    refunding,
    replaced,
)

ESCALATED, DUPLICATE, OMISSION = Verdict.ESCALATED, Verdict.DUPLICATE, Verdict.OMISSION
LOST = {"profile": "standard", "faults": ("lost-response",)}
blind = refunding()
"""Without keys and look-up: the gate lets one request through, and escalates what it does not know."""


# -- when it is written down ---------------------------------------------------------------------------------


def _mark_first(once: Once, files: Path) -> None:
    pay = once.provider("pay")
    with plain(once.track(files) / "agent.db") as db:
        if not db.execute("SELECT 1 FROM work").fetchall():
            db.execute("INSERT INTO work VALUES ('order_1', 'done')")
            pay.call("refund", PAYLOAD).raise_for_status()


def _act_then_mark(once: Once, files: Path) -> None:
    pay = once.provider("pay")
    with plain(once.track(files) / "agent.db") as db:
        if not db.execute("SELECT 1 FROM work").fetchall():
            pay.call("refund", PAYLOAD).raise_for_status()
            db.execute("INSERT INTO work VALUES ('order_1', 'done')")


def _forgets_receipts(once: Once, files: Path) -> None:
    blind(once, files)
    with plain(files / "agent.db") as db:
        db.execute("DELETE FROM gate_attempts")
        db.execute("DELETE FROM gate_intents WHERE state = 'SUCCEEDED'")


# -- what an answer proves -----------------------------------------------------------------------------------


def _believes(certainty: Certainty, *names: str) -> Callable[[BaseException], Outcome]:
    def classify(error: BaseException) -> Outcome:
        outcome = of_exception(error)
        wrong = any(name in f"{type(error).__name__} {outcome.reason}" for name in names)
        return Outcome(certainty, "it looks like a failure") if wrong else outcome

    return classify


# -- what may begin ------------------------------------------------------------------------------------------


def ended_lease_is_free(found: Stored, now: float) -> Steps[bool]:
    rows = yield Statement(
        "UPDATE gate_intents SET state = 'REGISTERED', lease_until = NULL WHERE intent_id = ? RETURNING 1",
        (found.intent_id,),
    )
    return bool(rows)


def _unknown_may_begin(found: Stored, promise: Promise, now: float) -> bool:
    return found.state in (State.REGISTERED, State.FAILED, State.UNKNOWN)


def _never_expires(found: Stored, now: float) -> Steps[bool]:
    yield from ()
    return False


# -- what a look-up proves -----------------------------------------------------------------------------------


def _not_found_is_absent(sought: Sought, answer: Any, promise: Promise, asked_at: float) -> Judged:
    if isinstance(answer, list) and not answer:
        return Judged(Judgement.NOT_EXECUTED, "not found")
    return _judge(sought, answer, promise, asked_at)


_judge = reconciler.judge
LAGS = Contract(name="lags", dedup="none", lookup="by_client_ref", visibility_lag_s=60)


# -- attempts that overlap -----------------------------------------------------------------------------------


def _overtaken(*mistakes: Any) -> Any:
    """An attempt may stall until its lease has ended. Then another one acts, and then the first fails unsent."""

    def body(once: Once, files: Path) -> None:
        pay = once.provider("pay", contract=SEEN)
        promises = {"refund": AT_ONCE}
        with closing(SQLite(once.track(files) / "agent.db")) as database, replaced(*mistakes):
            door = Gate(database, promises=promises, lease_s=LEASE_S, history=1)

            def reconcile() -> None:
                Reconciler(database, exact(pay), promises=promises).run()

            def act(attempt: Attempt) -> Any:
                if once.choose("an attempt", ("sends at once", "stalls")) == "sends at once":
                    return keyed(pay, attempt)
                time.sleep(LEASE_S + 1)
                reconcile()
                try:
                    door.call(REFUND, lambda attempt: keyed(pay, attempt))
                except NotExecuted:
                    pass  # this one belongs to another worker, who knows what to do
                raise ConnectionRefusedError("nothing was sent")

            reconcile()
            door.call(REFUND, act)

    return body


def _moves_whatever_attempt(
    attempt: Attempt, before: State, after: State, reason: str, result: str | None, now: float
) -> Steps[Stored | None]:
    found = yield from transitions.existing(attempt.intent_id)
    return (yield from _move(replace(attempt, number=found.attempts), before, after, reason, result, now))


def _moves_whatever_state(
    attempt: Attempt, before: State, after: State, reason: str, result: str | None, now: float
) -> Steps[Stored | None]:
    found = yield from transitions.existing(attempt.intent_id)
    mine = replace(attempt, number=found.attempts)
    return (yield from _move(mine, found.state, after, reason, result, now))


_move = settlement._move
OVERTAKEN = {"ignore": RETRIED["ignore"], "max_states": 60}


# -- ways past the gate --------------------------------------------------------------------------------------


def _acts_without_the_gate(once: Once, files: Path) -> None:
    try:
        blind(once, files)
    except GateUnreachable:
        once.provider("pay").call("refund", PAYLOAD).raise_for_status()


def _framework(once: Once, files: Path, fallback: bool) -> None:
    """A framework that retries a failed tool; its second try calls the function, or the protected tool."""
    pay = once.provider("pay")

    def tool(order: str) -> Any:
        return pay.call("refund", PAYLOAD).raise_for_status().body["id"]

    with closing(SQLite(once.track(files) / "agent.db")) as database:
        door = Gate(database, lease_s=LEASE_S, history=1)
        protected = door.protect(intent=lambda order: REFUND.id, tool="refund")(tool)
        try:
            try:
                protected("order_1")
            except InProgress:
                raise
            except NotExecuted:
                (tool if fallback else protected)("order_1")
        except Unknown:
            once.claim("unknown")


def _sends_again_below_the_gate(pay: Provider, attempt: Attempt) -> Any:
    try:
        return keyed(pay, attempt)
    except TimeoutError:
        return keyed(pay, attempt)


MUTANTS = (
    Mutant("mark-first", "The work is marked done, and then done.", OMISSION, _mark_first, blind,
           BLIND, ESCALATED),
    Mutant("act-then-mark", "The first thing that is stored is that it was done.", DUPLICATE, _act_then_mark, blind,
           BLIND, ESCALATED),
    Mutant("missing-local-row-taken-for-absence", "Old receipts are deleted; who finds none acts.", DUPLICATE,
           _forgets_receipts, blind, BLIND, ESCALATED),
    Mutant("5xx-as-failed", "A status of 500 is taken for proof that nothing happened.", DUPLICATE,
           refunding(classify=_believes(Certainty.FAILED, "status 500")), blind,
           {**BLIND, "profile": "standard", "faults": ("error-after",)}, ESCALATED),
    Mutant("time-out-as-failed", "No answer in time is taken for proof that nothing happened.", DUPLICATE,
           refunding(classify=_believes(Certainty.FAILED, "TimeoutError")), blind,
           {**BLIND, **LOST}, ESCALATED),
    Mutant("reset-as-never-arrived", "A reset connection is taken for one that never came about, and tried again.",
           DUPLICATE, refunding(classify=_believes(Certainty.NEVER_ARRIVED, "ConnectionResetError")), blind,
           {**BLIND, "profile": "standard", "faults": ("reset-response",)}, ESCALATED),
    Mutant("failed-without-proof", "Whatever is raised is told to the caller as a failure.", Verdict.FALSE_FAILURE,
           refunding(classify=_believes(Certainty.FAILED, "")), blind,
           {**BLIND, **LOST, "definite_failure": (Failed,)}, ESCALATED),
    Mutant("lease-expiry-retries", "A lease that has ended lets the next one act.", DUPLICATE,
           refunding((transitions, "expire_one", ended_lease_is_free)), blind, BLIND, ESCALATED),
    Mutant("unknown-retried", "UNKNOWN is tried again like a failure.", DUPLICATE,
           refunding((transitions, "may_begin", _unknown_may_begin)), blind,
           {**BLIND, **LOST}, ESCALATED),
    Mutant("claim-without-end", "A claim whose owner died is respected for ever.", Verdict.STUCK,
           refunding((transitions, "expire_one", _never_expires)), blind, BLIND, ESCALATED),
    Mutant("lookup-without-lag", "The look-up is believed although it shows effects a minute later.", DUPLICATE,
           refunding(contract=LAGS, promise=AT_ONCE), refunding(contract=LAGS, promise=Promise(request_lifetime_s=0.0)),
           {**BLIND, "restart_after": ("31s", "2m")}, ESCALATED),
    Mutant("not-found-taken-for-absence", "Not found means not executed, whatever may still be on its way.", DUPLICATE,
           refunding((reconciler, "judge", _not_found_is_absent), contract=SEEN), refunding(contract=SEEN),
           {**BLIND, "profile": "deep", "soft_faults": 1, "in_flight": 1, "faults": ("late",)}, ESCALATED),
    Mutant("claim-without-fencing", "An attempt that comes late reports on the attempt after it.", DUPLICATE,
           _overtaken((settlement, "_move", _moves_whatever_attempt)), _overtaken(), {**RETRIED, **LOST},
           wrong_how=OVERTAKEN),
    Mutant("done-overwritten-by-late-failure", "A late failure replaces the success of another attempt.", DUPLICATE,
           _overtaken((settlement, "_move", _moves_whatever_state)), _overtaken(), RETRIED,
           wrong_how=OVERTAKEN),
    Mutant("gate-bypassed-when-unreachable", "The gate's database is busy, so the tool is called without it.",
           DUPLICATE, _acts_without_the_gate, blind,
           {**BLIND, "profile": "deep", "soft_faults": 1, "faults": ("store-busy",)}, ESCALATED),
    Mutant("framework-retry-outside-the-gate", "The framework retries the function, not the protected tool.",
           DUPLICATE, lambda once, files: _framework(once, files, True),
           lambda once, files: _framework(once, files, False), {**BLIND, **LOST}, ESCALATED),
    Mutant("sdk-retry-below-the-gate", "The SDK inside the tool sends again by itself.", DUPLICATE,
           refunding(act=_sends_again_below_the_gate), blind, {**BLIND, **LOST}, ESCALATED),
)  # fmt: skip
