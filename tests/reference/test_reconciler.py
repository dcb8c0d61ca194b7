"""The reconciler on three stores: what a look-up proves, and when."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_once.reference import transitions
from pytest_once.reference.databases import AsyncSQLite
from pytest_once.reference.gate import AsyncGate, Unknown
from pytest_once.reference.promise import NOTHING, Promise
from pytest_once.reference.reconciler import AsyncReconciler, Found, Judgement, Lookup, Sought, judge
from pytest_once.reference.transitions import Request, State
from tests.reference.conftest import Clock, Store
from tests.reference.gates import LEASE_S, REFUND, Door, Provider

PROMPT = Promise(request_lifetime_s=120.0, visibility_lag_s=60.0)
TIMED_OUT = TimeoutError("no answer")


def finds(*found: Found) -> dict[str, Lookup]:
    return {"refund": Lookup(exact=lambda sought: list(found))}


def raising(error: Exception) -> dict[str, Lookup]:
    def fail(sought: Sought) -> Sequence[Found]:
        raise error

    return {"refund": Lookup(exact=fail)}


@pytest.fixture
def provider() -> Provider:
    return Provider()


@pytest.fixture
def door(store: Store, clock: Clock, provider: Provider) -> Door:
    """A gate with one intent of which nobody knows."""
    door = Door(store, clock, PROMPT)
    door.refused(provider.then(TIMED_OUT))
    return door


def test_what_is_found_was_executed(door: Door, provider: Provider) -> None:
    """S4.6, S3.4: the receipt is the provider's answer, and replayed like any other."""
    assert door.reconcile(finds(Found({"id": "re_1"}))).executed == [REFUND.id]
    receipt = door.call(provider.act)
    assert receipt.replayed and receipt.result == {"id": "re_1"}
    assert len(provider.effects) == 1


def test_not_found_proves_nothing_before_the_lag_has_passed(door: Door, clock: Clock, provider: Provider) -> None:
    """S4.6, S3.5 (incident S01): request lifetime and visibility lag, from the end of the lease.

    The caller had its time-out at once, but may have left a thread behind that was still sending (incident H09)."""
    clock.now += LEASE_S + 179
    assert door.reconcile(finds()).waiting == [REFUND.id]
    assert isinstance(door.refused(provider.act), Unknown)
    clock.now += 1
    assert door.reconcile(finds()).not_executed == [REFUND.id]
    assert door.state() is State.FAILED
    assert door.call(provider.act).replayed is False


def test_a_died_callers_requests_count_until_its_lease_ends(store: Store, clock: Clock) -> None:
    """S4.5, S3.5: nobody knows when it sent, only until when it was allowed to."""
    store.transact(transitions.admit(REFUND, PROMPT, LEASE_S, 20, clock()))
    door = Door(store, clock, PROMPT)
    clock.now += LEASE_S
    first = door.reconcile(finds())
    assert (first.expired, first.waiting) == (1, [REFUND.id])
    clock.now += 179
    assert door.reconcile(finds()).waiting == [REFUND.id]
    clock.now += 1
    assert door.reconcile(finds()).not_executed == [REFUND.id]


def test_a_lookup_that_does_not_answer_decides_nothing(door: Door, clock: Clock) -> None:
    """S3.5: an outage of the look-up is no absence, however long it lasts."""
    clock.now += 100000
    done = door.reconcile(raising(ConnectionError("down")))
    assert (done.waiting, done.not_executed) == ([REFUND.id], [])
    assert door.state() is State.UNKNOWN
    (question,) = door.questions()
    assert "the look-up failed (ConnectionError: down)" in question.reason


def test_without_lookup_a_person_is_asked(store: Store, clock: Clock, provider: Provider) -> None:
    """S4.6: with fingerprint, time window and candidates, which are never proof."""
    door = Door(store, clock)
    door.refused(provider.then(TIMED_OUT))
    clock.now += 7
    candidates = [{"id": "re_9", "amount": 500}]
    done = door.reconcile({"refund": Lookup(candidates=lambda sought: candidates)})
    assert (done.undecidable, done.asked) == ([REFUND.id], [REFUND.id])
    (question,) = door.questions()
    assert question.fingerprint == REFUND.fingerprint
    assert (question.window_from, question.window_to) == (clock.now - 7, clock.now - 7 + LEASE_S)
    assert question.candidates == ({"id": "re_9", "amount": 500},)
    assert door.state() is State.UNKNOWN


def test_a_person_is_asked_once_and_gets_the_newest_evidence(store: Store, clock: Clock, provider: Provider) -> None:
    """S4.6: a schedule that runs each minute must not fill the queue."""
    door = Door(store, clock)
    door.refused(provider.then(TIMED_OUT))
    assert door.reconcile({}).asked == [REFUND.id]
    clock.now += 60
    again = door.reconcile({"refund": Lookup(candidates=lambda sought: ["newer"])})
    assert again.asked == [] and again.undecidable == [REFUND.id]
    (question,) = door.questions()
    assert question.candidates == ("newer",) and question.asked_at == clock.now - 60


def test_what_is_found_later_withdraws_the_question(door: Door, clock: Clock) -> None:
    """S4.6: a person must not be asked what is known by now."""
    clock.now += 3600
    door.reconcile(raising(ConnectionError("down")))
    assert len(door.questions()) == 1
    door.reconcile(finds(Found("re_1")))
    assert door.questions() == [] and door.state() is State.SUCCEEDED


def test_candidates_that_cannot_be_had_do_not_keep_the_question_back(
    store: Store, clock: Clock, provider: Provider
) -> None:
    """S4.6: less evidence is still a question."""
    door = Door(store, clock)
    door.refused(provider.then(TIMED_OUT))

    def fail(sought: Sought) -> Any:
        raise ConnectionError("down")

    door.reconcile({"refund": Lookup(candidates=fail)})
    assert "could not be looked up" in str(door.questions()[0].candidates[0])


def test_every_unknown_is_looked_at_in_one_round(store: Store, clock: Clock, provider: Provider) -> None:
    """S4.6: the undecidable ones at the front must not starve the others (pages of two here)."""
    door = Door(store, clock, PROMPT)
    requests = [Request(f"shop:order_{number}:refund:pay", "refund", {"order": number}) for number in range(7)]
    for request in requests:
        door.refused(provider.then(TIMED_OUT), request)
    even = {"refund": Lookup(exact=lambda sought: [Found("yes")] if sought.payload["order"] % 2 == 0 else [])}
    done = door.reconcile(even)
    assert sorted(done.executed + done.waiting) == [request.id for request in requests]
    assert len(done.executed) == 4


def test_a_round_does_not_decide_over_a_newer_attempt(store: Store, clock: Clock, provider: Provider) -> None:
    """S4.2: while the provider was asked, somebody has begun a resend; its state is its own."""
    keyed = Promise(key_retention_s=math.inf, request_lifetime_s=0, visibility_lag_s=0)
    door = Door(store, clock, keyed)
    door.refused(provider.then(TIMED_OUT))
    found = door.stored()
    store.transact(transitions.admit(REFUND, keyed, LEASE_S, 20, clock()))
    assert not store.transact(transitions.decide(found, False, None, "look-up", "not found", clock()))
    assert door.state() is State.IN_FLIGHT


SOUGHT = Sought("i", "refund", {"amount": 5}, "f", sent_since=0.0, sent_until=10.0)


@pytest.mark.parametrize(
    ("answer", "promise", "asked_at", "judgement"),
    [
        ([Found("re_1")], NOTHING, 0.0, Judgement.EXECUTED),
        ([Found("re_1", {"amount": 5})], NOTHING, 0.0, Judgement.EXECUTED),
        ([Found("re_1", {"amount": 6})], PROMPT, 1e9, Judgement.UNDECIDABLE),
        ([Found("re_1"), Found("re_2")], PROMPT, 1e9, Judgement.UNDECIDABLE),
        ([], PROMPT, 189.9, Judgement.WAITING),
        ([], PROMPT, 190.0, Judgement.NOT_EXECUTED),
        ([], NOTHING, 1e9, Judgement.UNDECIDABLE),
        ([], Promise(request_lifetime_s=5.0), 1e9, Judgement.UNDECIDABLE),
        ([], Promise(key_retention_s=math.inf), 1e9, Judgement.WAITING),
        (ConnectionError(), PROMPT, 1e9, Judgement.WAITING),
        (None, PROMPT, 1e9, Judgement.UNDECIDABLE),
        (None, Promise(key_retention_s=math.inf), 1e9, Judgement.WAITING),
    ],
)
def test_what_an_answer_proves(
    answer: Sequence[Found] | Exception | None, promise: Promise, asked_at: float, judgement: Judgement
) -> None:
    """S4.6, S3.4, S3.5: three outcomes; a resend under a key will tell before a person has to."""
    assert judge(SOUGHT, answer, promise, asked_at).judgement is judgement


def test_async_lookups_are_awaited(tmp_path: Path) -> None:
    """S4.6: async clients of the provider are used as they are."""

    async def scenario() -> State:
        database = AsyncSQLite(tmp_path / "gate.db")
        await database.migrate()

        async def lost(attempt: object) -> None:
            raise TIMED_OUT

        with pytest.raises(Unknown):
            await AsyncGate(database).call(REFUND, lost)

        async def exact(sought: Sought) -> list[Found]:
            await asyncio.sleep(0)
            return [Found("re_1")]

        await AsyncReconciler(database, {"refund": Lookup(exact=exact)}).run()
        found = await database.transact(transitions.read(REFUND.id))
        await database.close()
        assert found is not None
        return found.state

    assert asyncio.run(scenario()) is State.SUCCEEDED


@pytest.mark.parametrize(
    "answer",
    [{}, "", set(), None, False, Found("re_1"), [{"id": "re_1"}], [Found(object())], [Found(math.nan)]],
    ids=["dict", "text", "set", "none", "false", "alone", "dicts", "no JSON", "NaN"],
)
def test_an_answer_that_is_no_list_of_found_proves_nothing(door: Door, clock: Clock, answer: Any) -> None:
    """S3.4: the body of an error must not become a proof of absence, nor end the round."""
    clock.now += 86400
    round_ = door.reconcile({"refund": Lookup(exact=lambda sought: answer)})
    assert (round_.waiting, round_.not_executed, round_.executed) == ([REFUND.id], [], [])
    assert door.state() is State.UNKNOWN


@pytest.mark.parametrize("candidates", [7, [object()]], ids=["no list", "no JSON"])
def test_candidates_that_cannot_be_shown_do_not_keep_the_question_back(
    door: Door, clock: Clock, candidates: Any
) -> None:
    """S4.7: a person decides all the same, and sees why there are none."""
    clock.now += LEASE_S
    door.reconcile({"refund": Lookup(candidates=lambda sought: candidates)})
    (question,) = door.questions()
    assert "could not be looked up" in str(question.candidates)
