"""Answers that come after the lease has ended, on three stores: noted, used as evidence, never over a decision."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from pytest_once.reference import people, transitions
from pytest_once.reference.gate import (
    Unknown,
    Unrecorded,
)
from pytest_once.reference.outcomes import Certainty, NoEffect
from pytest_once.reference.promise import Promise
from pytest_once.reference.steps import Statement, Steps
from pytest_once.reference.transitions import Attempt, State
from tests.reference.conftest import Clock, Opener, Store
from tests.reference.gates import LEASE_S, REFUND, Door, Provider

TIMED_OUT = TimeoutError("no answer")
FOR_A_DAY = Promise(key_retention_s=86400.0, request_lifetime_s=600.0)


@pytest.fixture
def provider() -> Provider:
    return Provider()


@pytest.fixture
def door(store: Store, clock: Clock) -> Door:
    return Door(store, clock)


def _late(door: Door, provider: Provider, meanwhile: Callable[[], object], error: Exception | None = None) -> Any:
    """A call that comes back after `meanwhile`, with its lease ended."""

    def act(attempt: Attempt) -> Any:
        door.clock.now += LEASE_S
        meanwhile()
        if error is not None:
            raise error
        return provider.act(attempt)

    return act


def test_a_late_answer_decides_what_nobody_had_decided(
    door: Door, provider: Provider, open_store: Opener, clock: Clock
) -> None:
    """S4.2: the answer is evidence, whenever it comes."""
    other = Door(open_store("own"), clock)
    receipt = door.call(_late(door, provider, lambda: other.refused(provider.act)))
    assert receipt.result == {"id": "re_1"} and door.state() is State.SUCCEEDED
    rows = door.store.transact(_rows("SELECT resolved_by FROM gate_attempts"))
    assert rows == [("late answer",)]


def _decide(door: Door, decision: str) -> None:
    door.store.transact(transitions.expire(door.clock(), 10))
    door.store.transact(people.resolve(REFUND.id, decision, "ada", "looked it up", door.clock(), json.dumps("by ada")))


def test_a_late_answer_never_overwrites_a_decision(
    door: Door, provider: Provider, open_store: Opener, clock: Clock
) -> None:
    """S4.5 (incidents Q14, Q20, D04): terminal states are final; the late success is noted under its token."""
    other = Door(open_store("own"), clock)
    assert door.call(_late(door, provider, lambda: _decide(other, "executed"))).result == "by ada"
    rows = door.store.transact(_rows("SELECT late_outcome, late_result FROM gate_attempts"))
    assert rows == [("SUCCEEDED", '{"id":"re_1"}')]
    assert door.questions() == []


def test_a_late_success_that_denies_a_decision_blocks_and_asks(
    door: Door, provider: Provider, open_store: Opener, clock: Clock
) -> None:
    """S4.2: FAILED allows another attempt, so evidence against it must stop that; a person decides again."""
    other = Door(open_store("own"), clock)
    refused = door.refused(_late(door, provider, lambda: _decide(other, "not-executed")))
    assert isinstance(refused, Unrecorded) and refused.outcome.certainty is Certainty.SUCCEEDED
    assert door.state() is State.FAILED
    assert isinstance(door.refused(provider.act), Unknown)
    (question,) = door.questions()
    assert question.contradiction and "ended late with SUCCEEDED" in question.reason
    door.store.transact(people.resolve(REFUND.id, "executed", "bob", "bank statement", clock(), '"by bob"'))
    assert door.call(provider.act).result == "by bob"
    assert len(provider.effects) == 1


def test_a_late_failure_that_denies_a_decision_asks(
    door: Door, provider: Provider, open_store: Opener, clock: Clock
) -> None:
    """S4.2: a receipt that stands for nothing is a lost effect; nothing is taken back by itself."""
    other = Door(open_store("own"), clock)
    late = _late(door, provider, lambda: _decide(other, "executed"), NoEffect("card declined"))
    assert door.call(late).result == "by ada"
    assert [question.contradiction for question in door.questions()] == [True]
    door.store.transact(people.resolve(REFUND.id, "not-executed", "bob", "declined, no booking", clock()))
    assert door.state() is State.FAILED


def test_an_old_attempt_does_not_disturb_a_newer_one(
    store: Store, provider: Provider, open_store: Opener, clock: Clock
) -> None:
    """S4.5: the token tells them apart; under one key both stand for the same effect, so nothing is wrong."""
    door, second = Door(store, clock, FOR_A_DAY), Door(open_store("own"), clock, FOR_A_DAY)
    states: list[Any] = []

    def slow(attempt: Attempt) -> Any:
        clock.now += LEASE_S
        states.append(second.call(provider.act).result)
        return provider.act(attempt)

    assert door.call(slow).result == {"id": "re_1"}
    assert states == [{"id": "re_1"}] and door.questions() == []
    assert [attempt.number for attempt in provider.attempts] == [2, 1]


def test_a_late_success_decides_a_resend_of_which_nobody_knows(
    store: Store, provider: Provider, open_store: Opener, clock: Clock
) -> None:
    """S4.2: under one key the earlier attempt's answer is evidence of the same effect."""
    door, second = Door(store, clock, FOR_A_DAY), Door(open_store("own"), clock, FOR_A_DAY)

    def slow(attempt: Attempt) -> Any:
        clock.now += LEASE_S
        second.refused(provider.then(TIMED_OUT))
        return provider.act(attempt)

    assert door.call(slow).result == {"id": "re_2"}
    assert door.state() is State.SUCCEEDED and door.questions() == []


def _rows(sql: str, *values: object) -> Steps[list[Any]]:
    return (yield Statement(sql, values))


def test_two_proven_effects_are_put_to_a_person(
    door: Door, provider: Provider, open_store: Opener, clock: Clock
) -> None:
    """S4.5: a person said that nothing had happened, the next attempt acted, and then the first one's success comes."""
    other = Door(open_store("own"), clock)

    def meanwhile() -> None:
        _decide(other, "not-executed")
        assert other.call(provider.act).result == {"id": "re_1"}

    with pytest.raises(Unrecorded, match="the two contradict each other"):
        door.call(_late(door, provider, meanwhile))
    assert len(provider.effects) == 2
    (question,) = door.questions()
    assert question.contradiction and "ended late with SUCCEEDED" in question.reason
    assert door.state() is State.SUCCEEDED
    door.store.transact(people.resolve(REFUND.id, "executed", "ada", "paid one back", door.clock()))
    assert door.questions() == [] and door.call(provider.act).result == {"id": "re_1"}


@pytest.mark.parametrize("result", ["notjson", "{", "NaN", "Infinity"])
def test_a_person_gives_a_result_that_can_be_read(door: Door, provider: Provider, result: str) -> None:
    """S4.7: every later caller would stumble over it, for ever."""
    door.refused(provider.then(TIMED_OUT))
    with pytest.raises(ValueError, match="is no JSON"):
        door.store.transact(people.resolve(REFUND.id, "executed", "ada", "looked it up", door.clock(), result))
    assert door.state() is State.UNKNOWN
