"""Tasks and intents are stored together, before anything is done, and planning again changes neither."""

from __future__ import annotations

import itertools

import pytest

from pytest_once.reference import outbox
from pytest_once.reference.identity import Effect, EffectConflict, uuid7
from pytest_once.reference.messages import Command
from pytest_once.reference.planning import Intent, Planned, plan
from pytest_once.reference.steps import Statement, Steps
from tests.reference.conftest import Opener, Store

REFUND = Effect("refund", bearing=("order", "amount"), incidental=("note",))


def refund(amount: int = 5, note: str = "", step: str = "pay") -> Planned:
    return Planned(step, REFUND, {"order": "o1", "amount": amount, "note": note})


def stored(table: str) -> Steps[int]:
    ((number,),) = yield Statement(f"SELECT count(*) FROM {table}")
    return int(number)


def test_task_and_intents_commit_together_or_not_at_all(store: Store) -> None:
    """S4.1, S4.10: a task without its names would be given new ones after a crash."""

    def fails_after() -> Steps[None]:
        yield from plan("acme", "t1", "refund o1", [refund()], now=1.0)
        raise RuntimeError("the process ends here")

    with pytest.raises(RuntimeError):
        store.transact(fails_after())
    assert (store.transact(stored("tasks")), store.transact(stored("intents"))) == (0, 0)
    (intent,) = store.transact(plan("acme", "t1", "refund o1", [refund()], now=1.0))
    assert intent.intent_id == "acme:t1:pay:refund"
    assert (store.transact(stored("tasks")), store.transact(stored("intents"))) == (1, 1)


def test_planning_again_in_other_words_gives_the_stored_intent(open_store: Opener) -> None:
    """S4.10, S3.1: a restart, a supervisor or a model plans anew; the id and payload made first stay."""
    ids = itertools.count()

    def new() -> str:
        return f"{uuid7()}-{next(ids)}"

    def planned(note: str) -> Intent:
        (intent,) = open_store("own").transact(plan("acme", "t1", note, [refund(note=note)], now=1.0, new_id=new))
        return intent

    first = planned("refund the order")
    again = planned("please give the money back")
    assert again == first
    assert again.payload["note"] == "refund the order"


def test_a_plan_that_drifts_is_a_conflict(store: Store) -> None:
    """S3.3: the same step with another amount is neither the old action nor silently a new one."""
    store.transact(plan("acme", "t1", "refund", [refund(5)], now=1.0))
    with pytest.raises(EffectConflict, match="amount differs"):
        store.transact(plan("acme", "t1", "refund", [refund(6)], now=2.0))
    assert [store.transact(stored(table)) for table in ("tasks", "intents")] == [1, 1]


def test_the_same_arguments_in_another_step_are_another_intent(store: Store) -> None:
    """S4.10: two top-ups of five are two; hashing arguments would make them one."""
    first, second = store.transact(plan("acme", "t1", "twice", [refund(step="a"), refund(step="b")], now=1.0))
    assert first.intent_id != second.intent_id
    assert first.binding == second.binding


def test_tenants_plan_apart(store: Store) -> None:
    """S1.4: one tenant's task says nothing about another's of the same name."""
    (ours,) = store.transact(plan("a", "t1", "refund", [refund(5)], now=1.0))
    (theirs,) = store.transact(plan("b", "t1", "refund", [refund(6)], now=1.0))
    assert ours.intent_id != theirs.intent_id


def test_a_plan_and_its_command_are_one_transaction(store: Store) -> None:
    """S2.1, S4.1: the intent's name is the command's, so that planning again puts nothing new."""

    def steps() -> Steps[bool]:
        (intent,) = yield from plan("acme", "t1", "refund", [refund()], now=1.0)
        command = Command(
            event_id=intent.intent_id,
            event_type="refund",
            tenant="acme",
            object_id="o1",
            version=1,
            payload=intent.payload,
        )
        return (yield from outbox.put(command, now=1.0))

    assert store.transact(steps()) is True
    assert store.transact(steps()) is False
