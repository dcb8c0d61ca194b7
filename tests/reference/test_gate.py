"""The gate on three stores: who may act, who gets the receipt, and what is never guessed."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pytest_once.reference import settlement, transitions
from pytest_once.reference.databases import AsyncSQLite, PostgreSQL, SQLite
from pytest_once.reference.gate import (
    AsyncGate,
    Conflict,
    Failed,
    Gate,
    GateUnreachable,
    InProgress,
    Receipt,
    Unknown,
    Unrecorded,
)
from pytest_once.reference.identity import Effect
from pytest_once.reference.outcomes import Certainty, NoEffect, Outcome
from pytest_once.reference.planning import Planned, plan
from pytest_once.reference.promise import Promise
from pytest_once.reference.steps import Statement, Steps
from pytest_once.reference.transitions import Attempt, Request, State
from tests.reference.conftest import Clock, OnALoop, Opener, Store
from tests.reference.gates import LEASE_S, REFUND, Door, Provider

TIMED_OUT = TimeoutError("no answer")
REFUSED = ConnectionRefusedError("nobody listens")
FOR_A_DAY = Promise(key_retention_s=86400.0, request_lifetime_s=600.0)


@pytest.fixture
def provider() -> Provider:
    return Provider()


@pytest.fixture
def door(store: Store, clock: Clock) -> Door:
    return Door(store, clock)


# -- receipts and conflicts ------------------------------------------------------------------------------


def test_every_later_request_gets_the_same_receipt(
    door: Door, provider: Provider, open_store: Opener, clock: Clock
) -> None:
    """S4.1: issued once on success, also to whoever asks through another connection."""
    first = door.call(provider.act)
    assert first == Receipt(REFUND.id, {"id": "re_1"}, replayed=False)
    for other in (door, Door(open_store("own"), clock)):
        assert other.call(provider.act) == Receipt(REFUND.id, {"id": "re_1"}, replayed=True)
    assert provider.effects == [REFUND.id]


@pytest.mark.parametrize("result", [None, 0, "", [], {"note": "naïve – 3 €"}])
def test_a_receipt_holds_what_the_tool_returned(door: Door, result: object) -> None:
    """S4.1: a result that is falsy is a result."""
    assert door.call(lambda _: result).result == result
    assert door.call(lambda _: "another").result == result


def test_the_same_identity_with_another_payload_is_a_conflict(door: Door, provider: Provider) -> None:
    """S3.3 (incident K06): deduplication that swallows a different action is a bug too."""
    door.call(provider.act)
    for other in (
        Request(REFUND.id, "refund", {"order": "order_1", "amount": 900}),
        Request(REFUND.id, "charge", {"order": "order_1", "amount": 500}),
    ):
        refused = door.refused(provider.act, other)
        assert isinstance(refused, Conflict)
        assert "Another action needs an identity of its own" in str(refused)
    assert len(provider.effects) == 1


def test_a_conflict_is_one_in_every_state(door: Door, provider: Provider) -> None:
    """S3.3: also where the first request failed or nobody knows, a changed amount is another action."""
    other = Request(REFUND.id, "refund", {"order": "order_1", "amount": 900})
    door.refused(provider.then(NoEffect("declined"), acts=False))
    assert isinstance(door.refused(provider.act, other), Conflict)
    door.refused(provider.then(TIMED_OUT))
    assert isinstance(door.refused(provider.act, other), Conflict)
    assert len(provider.effects) == 1


def test_an_intent_is_stored_with_its_task_in_one_transaction(store: Store, clock: Clock, provider: Provider) -> None:
    """S4.1, S4.10: the id is made at planning time; what is rolled back was never registered."""
    effect = Effect("refund", ("order", "amount"), ("note",))
    planned = Planned("refund", effect, {"order": "o", "amount": 5, "note": "x"})

    def accept(fail: bool) -> Steps[Request]:
        (intent,) = yield from plan("shop", "task-1", "refund o", [planned], now=clock())
        request = Request.of(intent)
        assert (yield from transitions.register(request, clock()))
        if fail:
            raise ZeroDivisionError
        return request

    with pytest.raises(ZeroDivisionError):
        store.transact(accept(fail=True))
    request = store.transact(accept(fail=False))
    door = Door(store, clock)
    assert door.state(request) is State.REGISTERED
    assert door.call(provider.act, request).intent_id == "shop:task-1:refund:refund"
    again = Planned("refund", planned.effect, {"order": "o", "amount": 5, "note": "y"})
    (reworded,) = store.transact(plan("shop", "task-1", "in other words", [again], now=clock()))
    assert door.call(provider.act, Request.of(reworded)).replayed


# -- outcomes --------------------------------------------------------------------------------------------


def test_an_ambiguous_outcome_blocks(door: Door, provider: Provider) -> None:
    """S4.4, S3.4: UNKNOWN is never permission to execute."""
    refused = door.refused(provider.then(TIMED_OUT))
    assert isinstance(refused, Unknown) and repr(refused.__cause__) == repr(TIMED_OUT)
    assert door.state() is State.UNKNOWN
    assert isinstance(door.refused(provider.act), Unknown)
    assert len(provider.effects) == 1


def test_only_proof_of_no_effect_fails_and_allows_another_attempt(door: Door, provider: Provider) -> None:
    """S4.2: only FAILED may be registered again; each attempt has a larger fencing token."""
    assert isinstance(door.refused(provider.then(NoEffect("card declined"), acts=False)), Failed)
    assert door.state() is State.FAILED
    assert door.call(provider.act).replayed is False
    assert [attempt.number for attempt in provider.attempts] == [1, 2]
    assert {attempt.key for attempt in provider.attempts} == {REFUND.id}


def test_attempts_are_kept_with_what_came_of_them(door: Door, provider: Provider, clock: Clock) -> None:
    """S4.3, S4.4: attempt records and the fingerprint, for whoever has to find out."""
    door.refused(provider.then(REFUSED, acts=False))
    clock.now += 5
    door.refused(provider.then(TIMED_OUT))
    rows = door.store.transact(_rows("SELECT attempt, started_at, outcome, reason FROM gate_attempts ORDER BY attempt"))
    assert [row[:3] for row in rows] == [(1, clock.now - 5, "NEVER_ARRIVED"), (2, clock.now, "UNKNOWN")]
    assert "no answer" in rows[1][3]
    assert len(door.stored().fingerprint) == 64 and door.stored().attempts == 2


def test_records_of_old_attempts_are_dropped(store: Store, clock: Clock, provider: Provider) -> None:
    """A retry loop must not fill the table; the counter still tells how many there were."""
    door = Door(store, clock, history=2)
    for _ in range(5):
        door.refused(provider.then(REFUSED, acts=False))
    assert store.transact(_rows("SELECT attempt FROM gate_attempts ORDER BY attempt")) == [(4,), (5,)]
    assert door.stored().attempts == 5


def test_what_never_arrived_may_be_retried_freely(door: Door, provider: Provider) -> None:
    """S4.8: the first of three layers; each retry is an attempt of its own."""
    errors: list[BaseException] = [REFUSED, REFUSED]

    def act(attempt: Attempt) -> Any:
        return provider.then(errors.pop(), acts=False)(attempt) if errors else provider.act(attempt)

    assert door.call(act, free_retries=2).result == {"id": "re_1"}
    assert [attempt.number for attempt in provider.attempts] == [1, 2, 3]


def test_free_retries_end_with_the_first_ambiguous_outcome(door: Door, provider: Provider) -> None:
    """S4.8: a time-out is not one of the errors that certainly never arrived."""
    assert isinstance(door.refused(provider.then(TIMED_OUT), free_retries=5), Unknown)
    assert len(provider.attempts) == 1
    other = Request("shop:order_2:refund:pay", "refund", {"order": "order_2"})
    assert isinstance(door.refused(provider.then(REFUSED, acts=False), other, free_retries=2), Failed)
    assert len(provider.attempts) == 4


def test_a_result_that_is_no_json_is_no_doubt_about_the_effect(door: Door, provider: Provider) -> None:
    """S4.2: the effect happened; a receipt that cannot be written must not become UNKNOWN or FAILED."""
    with pytest.raises(TypeError, match="was executed and is recorded"):
        door.call(lambda attempt: provider.act(attempt) and {1, 2})
    assert door.call(provider.act) == Receipt(REFUND.id, None, replayed=True)
    assert len(provider.effects) == 1


def test_an_interrupt_is_recorded_and_goes_on(store: Store, clock: Clock, provider: Provider) -> None:
    """S4.4: whoever presses Control-C does not know either."""
    door = Door(store, clock)
    if isinstance(store, (SQLite, PostgreSQL)):
        with pytest.raises(KeyboardInterrupt):
            door.call(provider.then(KeyboardInterrupt()))
    else:
        # On a loop the same thing arrives as a cancellation.
        with pytest.raises(asyncio.CancelledError):
            door.call(provider.then(asyncio.CancelledError()))
    assert door.state() is State.UNKNOWN


# -- leases ----------------------------------------------------------------------------------------------


def test_nobody_else_acts_during_the_lease(door: Door, provider: Provider, open_store: Opener, clock: Clock) -> None:
    """S4.2 (incident K01): a second request while the first one acts."""
    seen: list[BaseException] = []

    def act(attempt: Attempt) -> Any:
        clock.now += LEASE_S - 1
        seen.append(Door(open_store("own"), clock).refused(provider.act))
        return provider.act(attempt)

    door.call(act)
    assert isinstance(seen[0], InProgress) and "for 1 s at most" in str(seen[0])
    assert len(provider.effects) == 1


def test_an_ended_lease_is_unknown_and_never_a_retry(
    door: Door, provider: Provider, open_store: Opener, clock: Clock
) -> None:
    """S4.5 (incidents K08, K09): no time-out is right for taking over; only a look-up or a person is."""
    outcomes = []

    def act(attempt: Attempt) -> Any:
        clock.now += LEASE_S
        second = Door(open_store("own"), clock)
        outcomes.append((type(second.refused(provider.act)), second.state()))
        raise TIMED_OUT

    assert isinstance(door.refused(act), Unknown)
    assert outcomes == [(Unknown, State.UNKNOWN)]
    assert provider.effects == []


def test_a_keyed_resend_is_allowed_while_the_provider_remembers(store: Store, clock: Clock, provider: Provider) -> None:
    """S4.5, S1.8: under the same key, and only if it arrives before the first receipt can have expired."""
    door = Door(store, clock, FOR_A_DAY)
    door.refused(provider.then(TIMED_OUT))
    clock.now += 86400 - 601
    assert door.call(provider.act).replayed is False
    assert [(attempt.key, attempt.resend) for attempt in provider.attempts] == [(REFUND.id, False), (REFUND.id, True)]


def test_a_keyed_resend_ends_before_the_keys_are_forgotten(store: Store, clock: Clock, provider: Provider) -> None:
    """S1.8 (incidents P07, P09): counted from the first request; the way of a request is part of the time."""
    door = Door(store, clock, FOR_A_DAY)
    door.refused(provider.then(TIMED_OUT))
    clock.now += 40000
    door.refused(provider.then(TIMED_OUT))
    clock.now += 86400 - 600 - 40000
    assert isinstance(door.refused(provider.act), Unknown)
    assert len(provider.attempts) == 2


def test_keys_that_are_forgotten_before_a_request_arrives_promise_nothing() -> None:
    """S1.8: such a promise is refused where it is made."""
    with pytest.raises(ValueError, match="a request that arrives when its key is forgotten acts anew"):
        Promise(key_retention_s=600.0, request_lifetime_s=600.0)
    with pytest.raises(ValueError, match="visibility_lag_s"):
        Promise(visibility_lag_s=math.nan)


@pytest.mark.parametrize("error", [REFUSED, NoEffect("card declined")], ids=["refused", "declined"])
def test_a_resend_that_failed_proves_nothing_about_the_first(
    store: Store, clock: Clock, provider: Provider, error: Exception
) -> None:
    """S4.2, S4.4: FAILED needs proof for every request that was sent, not for the last one only."""
    door = Door(store, clock, FOR_A_DAY)
    door.refused(provider.then(TIMED_OUT))
    assert isinstance(door.refused(provider.then(error, acts=False)), Unknown)
    assert door.state() is State.UNKNOWN


def test_a_resend_that_succeeded_closes_the_case(store: Store, clock: Clock, provider: Provider) -> None:
    """S4.7: the attempt of which nothing was known is decided too, and counted so."""
    door = Door(store, clock, FOR_A_DAY)
    door.refused(provider.then(TIMED_OUT))
    clock.now += 30
    door.call(provider.act)
    rows = store.transact(_rows("SELECT resolved_by, resolved_at - unknown_at FROM gate_attempts WHERE attempt = 1"))
    assert rows == [("answer", 30.0)]


# -- the gate's own database -----------------------------------------------------------------------------


class Broken:
    """A database of which one transaction fails, counted from 1, or all from it on."""

    def __init__(self, database: Any, fails: int, lasting: bool) -> None:
        self.database, self.left, self.lasting = database, fails, lasting

    def _fail(self, steps: Steps[Any]) -> None:
        self.left -= 1
        if self.left == 0 or (self.left < 0 and self.lasting):
            steps.close()
            raise OSError("disk I/O error")

    def transact(self, steps: Steps[Any]) -> Any:
        self._fail(steps)
        return self.database.transact(steps)

    def migrate(self) -> Any:
        return self.database.migrate()

    def close(self) -> Any:
        return self.database.close()


@contextmanager
def breaking(store: Store, fails: int, *, lasting: bool) -> Iterator[Store]:
    """The store, or what it stands on, with transactions that fail."""
    if isinstance(store, OnALoop):
        whole = store.database
        store.database = Broken(whole, fails, lasting)
        try:
            yield store
        finally:
            store.database = whole
    else:
        yield Broken(store, fails, lasting)


def test_without_the_gate_nobody_acts(tmp_path: Path, clock: Clock, provider: Provider) -> None:
    """S4.3: a busy file, a server that is gone: refused with the reason, never bypassed."""
    path = tmp_path / "gate.db"
    whole, impatient = SQLite(path), SQLite(path, busy_timeout_s=0.01)
    whole.migrate()
    whole.close()
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN EXCLUSIVE")
    with pytest.raises(GateUnreachable, match="was not executed: the gate's database failed"):
        Gate(impatient, clock=clock).call(REFUND, provider.act)
    impatient.close()

    async def on_a_loop() -> None:
        database = AsyncSQLite(path, busy_timeout_s=0.01)
        try:
            with pytest.raises(GateUnreachable):
                await AsyncGate(database, clock=clock).call(REFUND, provider.act)
        finally:
            await database.close()

    asyncio.run(on_a_loop())
    blocker.close()
    with pytest.raises(GateUnreachable):
        Gate(PostgreSQL("postgresql://127.0.0.1:1/gone"), clock=clock).call(REFUND, provider.act)
    assert provider.attempts == []


def test_an_outcome_is_stored_at_the_second_try(store: Store, clock: Clock, provider: Provider) -> None:
    """S4.5: repeating the write-back is harmless, since it is a compare-and-set by token."""
    with breaking(store, 2, lasting=False) as broken:
        assert Door(broken, clock).call(provider.act).replayed is False
    assert Door(store, clock).state() is State.SUCCEEDED


def test_a_success_that_could_not_be_stored_is_told_as_that(store: Store, clock: Clock, provider: Provider) -> None:
    """S4.5: no success may be reported that later requests do not get; it becomes UNKNOWN by its lease."""
    with breaking(store, 2, lasting=True) as broken:
        refused = Door(broken, clock).refused(provider.act)
    assert isinstance(refused, Unrecorded) and "disk I/O error" in str(refused)
    assert refused.outcome.certainty is Certainty.SUCCEEDED
    clock.now += LEASE_S
    assert isinstance(Door(store, clock).refused(provider.act), Unknown)
    assert len(provider.effects) == 1


def test_recording_twice_changes_nothing(store: Store, clock: Clock) -> None:
    """A commit whose answer was lost is repeated: the second one must find its own work, not a late answer."""
    attempt = store.transact(transitions.admit(REFUND, Promise(), LEASE_S, 20, clock()))
    assert isinstance(attempt, Attempt)
    for outcome, result in ((Outcome(Certainty.SUCCEEDED, "yes"), "1"), (Outcome(Certainty.SUCCEEDED, "yes"), "1")):
        recorded = store.transact(settlement.record(attempt, outcome, result, clock()))
        assert (recorded.stored.state, recorded.late) == (State.SUCCEEDED, False)


# -- edges, threads, processes ---------------------------------------------------------------------------

_EDGES = {
    # event: state before → state after, where it changes anything
    "admitted": {"REGISTERED": "IN_FLIGHT", "FAILED": "IN_FLIGHT"},
    "admitted, keyed": {"REGISTERED": "IN_FLIGHT", "FAILED": "IN_FLIGHT", "UNKNOWN": "IN_FLIGHT"},
    "succeeded": {"IN_FLIGHT": "SUCCEEDED", "UNKNOWN": "SUCCEEDED"},
    "failed": {"IN_FLIGHT": "FAILED", "UNKNOWN": "FAILED"},
    "ambiguous": {"IN_FLIGHT": "UNKNOWN"},
    "lease ended": {"IN_FLIGHT": "UNKNOWN"},
    "found": {"UNKNOWN": "SUCCEEDED"},
    "not found": {"UNKNOWN": "FAILED"},
}


@pytest.mark.parametrize("event", _EDGES)
def test_there_are_no_other_edges(store: Store, event: str) -> None:
    """S4.2: the whole state machine, each event in each state."""
    for before in State:
        request = Request(before, "refund", {})
        store.transact(transitions.register(request, 0.0))
        lease = 10.0 if before is State.IN_FLIGHT else None
        set_up = "attempts = 1, lease_until = ?, sent_since = 0, unknown_since = 0 WHERE intent_id = ?"
        store.transact(_rows(f"UPDATE gate_intents SET state = ?, {set_up}", before.value, lease, request.id))
        store.transact(_rows("INSERT INTO gate_attempts (intent_id, attempt, started_at) VALUES (?, 1, 0)", request.id))
    for before in State:
        store.transact(_event(event, Request(before, "refund", {})))
        found = store.transact(transitions.read(before))
        assert found is not None and found.state == _EDGES[event].get(before, before)


def _event(event: str, request: Request) -> Steps[Any]:
    found = yield from transitions.read(request.id)
    assert found is not None
    attempt = Attempt(request.id, 1, 10.0, 0.0, resend=False)
    outcomes = {"succeeded": Certainty.SUCCEEDED, "failed": Certainty.FAILED, "ambiguous": Certainty.UNKNOWN}
    if event.startswith("admitted"):
        promise = Promise(key_retention_s=math.inf) if "keyed" in event else Promise()
        yield from transitions.admit(request, promise, 10.0, 20, 5.0)
    elif event in outcomes:
        yield from settlement.record(attempt, Outcome(outcomes[event], event), "1", 5.0)
    elif event == "lease ended":
        yield from transitions.expire(10.0, 10)
    else:
        yield from transitions.decide(found, event == "found", None, "look-up", event, 5.0)


_WORKER = """
import sys
from pytest_once.reference.databases import PostgreSQL, SQLite
from pytest_once.reference.gate import Gate, NotExecuted
from pytest_once.reference.transitions import Request
kind, target, effects = sys.argv[1:4]
database = PostgreSQL(target) if kind == "PostgreSQL" else SQLite(target)
gate = Gate(database)
sys.stdin.readline()
for number in range(30):
    def act(attempt):
        with open(effects, "a") as ledger:
            ledger.write(attempt.key + "\\n")
        return number
    try:
        gate.call(Request(f"i{number}", "t", {"n": number}), act)
    except NotExecuted as refused:
        assert type(refused).__name__ in ("InProgress", "GateUnreachable"), refused
"""


def test_many_processes_execute_each_intent_once(open_store: Opener, tmp_path: Path) -> None:
    """S4.2, S1.6 (incidents K01, K02): insert-or-read and compare-and-set decide between real processes."""
    store = open_store("own")
    database = getattr(store, "database", store)
    assert isinstance(database, (SQLite, AsyncSQLite, PostgreSQL))
    target = database.url if isinstance(database, PostgreSQL) else database.path
    effects = tmp_path / "effects"
    command = [sys.executable, "-c", _WORKER, type(database).__name__, target, str(effects)]
    workers = [subprocess.Popen(command, stdin=subprocess.PIPE, text=True) for _ in range(3)]
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.close()
    assert [worker.wait() for worker in workers] == [0, 0, 0]
    done = effects.read_text().split()
    assert sorted(done) == sorted(set(done))
    # One that lost the race for the database may leave an intent to the others, but not to nobody.
    assert len(done) == 30


def test_a_killed_process_leaves_unknown(tmp_path: Path, clock: Clock, provider: Provider) -> None:
    """S4.5: SIGKILL inside the tool; the lease says when to stop believing, and nobody acts a second time."""
    database = SQLite(tmp_path / "gate.db")
    database.migrate()
    child = os.fork()
    if child == 0:

        def killed(attempt: Attempt) -> None:
            (tmp_path / "effect").write_text(attempt.key)
            os.kill(os.getpid(), signal.SIGKILL)

        try:
            Gate(database, lease_s=LEASE_S, clock=clock).call(REFUND, killed)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert (tmp_path / "effect").read_text() == REFUND.id
    door = Door(database, clock)
    assert isinstance(door.refused(provider.act), InProgress)
    clock.now += LEASE_S
    assert isinstance(door.refused(provider.act), Unknown)
    database.close()


def _rows(sql: str, *values: object) -> Steps[list[Any]]:
    return (yield Statement(sql, values))
