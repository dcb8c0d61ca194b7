"""The queue for people on three stores: who decides, on what evidence, and when it is too late."""

from __future__ import annotations

import pytest

from pytest_once.reference import people, transitions
from pytest_once.reference.gate import Unknown
from pytest_once.reference.people import NotResolved
from pytest_once.reference.promise import Promise
from pytest_once.reference.steps import Statement, Steps
from pytest_once.reference.transitions import State
from tests.reference.conftest import Clock, Store
from tests.reference.gates import LEASE_S, REFUND, Door, Provider

TIMED_OUT = TimeoutError("no answer")


@pytest.fixture
def provider() -> Provider:
    return Provider()


@pytest.fixture
def door(store: Store, clock: Clock, provider: Provider) -> Door:
    """A gate with one intent that waits for a person."""
    door = Door(store, clock)
    door.refused(provider.then(TIMED_OUT))
    door.reconcile({})
    return door


def _decisions() -> Steps[list[tuple[object, ...]]]:
    return (yield Statement("SELECT decision, decided_by, why FROM gate_questions ORDER BY asked_at"))


def test_a_person_who_found_it_gives_the_receipt(door: Door, clock: Clock, provider: Provider) -> None:
    """S4.6, S4.2: who and why are kept; the receipt is replayed."""
    steps = people.resolve(REFUND.id, "executed", "ada", "on the statement", clock(), '{"id": "re_1"}')
    assert door.store.transact(steps) is State.SUCCEEDED
    assert door.call(provider.act).result == {"id": "re_1"}
    assert door.store.transact(_decisions()) == [("executed", "ada", "on the statement")]
    assert door.questions() == [] and "ada decided" in str(door.stored().reason)


def test_a_person_who_did_not_find_it_allows_another_attempt(door: Door, clock: Clock, provider: Provider) -> None:
    """S4.2: a person's word is proof, too."""
    steps = people.resolve(REFUND.id, "not-executed", "ada", "bank says no", clock())
    assert door.store.transact(steps) is State.FAILED
    assert door.call(provider.act).replayed is False


def test_the_second_decision_is_refused(door: Door, clock: Clock) -> None:
    """S4.6: compare-and-set between two people; the first word stands."""
    door.store.transact(people.resolve(REFUND.id, "executed", "ada", "seen", clock()))
    with pytest.raises(NotResolved, match=r"is SUCCEEDED, not UNKNOWN \(ada decided: seen\); nothing was changed"):
        door.store.transact(people.resolve(REFUND.id, "not-executed", "bob", "not seen", clock()))
    assert door.state() is State.SUCCEEDED
    assert len(door.store.transact(_decisions())) == 1


def test_what_may_be_executed_right_now_is_not_decided(store: Store, clock: Clock) -> None:
    """S4.2: while a lease runs, an answer may still come."""
    store.transact(transitions.admit(REFUND, Promise(), LEASE_S, 20, clock()))
    with pytest.raises(NotResolved, match="wait until its lease has ended"):
        store.transact(people.resolve(REFUND.id, "not-executed", "ada", "seen nothing", clock()))
    clock.now += LEASE_S
    assert store.transact(people.resolve(REFUND.id, "not-executed", "ada", "seen nothing", clock())) is State.FAILED


def test_an_unasked_intent_may_be_decided(store: Store, clock: Clock, provider: Provider) -> None:
    """S4.6: whoever learns it before the reconciler does may say so; that is on record as well."""
    door = Door(store, clock)
    door.refused(provider.then(TIMED_OUT))
    store.transact(people.resolve(REFUND.id, "executed", "ada", "customer called", clock()))
    assert store.transact(_decisions()) == [("executed", "ada", "customer called")]


def test_a_decision_stays_on_record_when_the_intent_is_asked_about_again(
    door: Door, clock: Clock, provider: Provider
) -> None:
    """S4.6: the first answer was wrong or right; the second question does not erase it."""
    door.store.transact(people.resolve(REFUND.id, "not-executed", "ada", "bank says no", clock()))
    clock.now += 10
    assert isinstance(door.refused(provider.then(TIMED_OUT)), Unknown)
    door.reconcile({})
    assert door.store.transact(_decisions()) == [("not-executed", "ada", "bank says no"), (None, None, None)]
    assert len(door.questions()) == 1


@pytest.mark.parametrize(
    ("intent", "decision", "by", "why", "said"),
    [
        ("nobody:knows", "executed", "ada", "seen", "there is no intent 'nobody:knows'"),
        (REFUND.id, "perhaps", "ada", "seen", "say executed or not-executed"),
        (REFUND.id, "executed", " ", "seen", "say who decides, and why"),
        (REFUND.id, "executed", "ada", "", "say who decides, and why"),
    ],
)
def test_a_decision_without_its_evidence_is_refused(
    door: Door, clock: Clock, intent: str, decision: str, by: str, why: str, said: str
) -> None:
    """S4.6: a decision that nobody stands for is a guess."""
    with pytest.raises((NotResolved, ValueError), match=said):
        door.store.transact(people.resolve(intent, decision, by, why, clock()))
    assert door.state() is State.UNKNOWN
