"""A14: a call times out, the model asks again under a new call id, and a guard keyed by that id lets it pass.

Keyed by arguments instead, the guard merges two real intents. One run under three keys. Report:
openai/openai-agents-python#4254.
"""

from __future__ import annotations

from collections.abc import Callable

from pytest_once import Once, Verdict, explore
from tests.incidents.models import by_fault_alone, convicted, convicted_undisturbed, exactly_once

KeyOf = Callable[[str, str, str], str]


def by_call_id(call_id: str, arguments: str, intent: str) -> str:
    return call_id


def by_arguments(call_id: str, arguments: str, intent: str) -> str:
    return arguments


def by_intent(call_id: str, arguments: str, intent: str) -> str:
    return intent


def agent(once: Once, key_of: KeyOf) -> None:
    """The person wants two equal top-ups; the model repeats a call that timed out."""
    once.intend("account_1", 2)
    bank = once.provider("bank", contract="client_key")
    for intent in ("first top-up", "second top-up"):
        for turn in ("turn 1", "turn 2"):
            try:
                bank.call("top up", {"account": "account_1"}, key=key_of(f"{intent}/{turn}", "account_1", intent))
                break
            except TimeoutError:
                continue
        else:
            raise TimeoutError


def test_a_key_of_the_call_is_new_in_each_turn() -> None:
    report = explore(lambda once: agent(once, by_call_id), faults=("lost-response",))
    convicted(report, Verdict.DUPLICATE, expected=2, actual=3, key="account_1")
    assert any(schedule.startswith("lr@") for schedule in by_fault_alone(report))


def test_a_key_of_the_arguments_merges_two_intents() -> None:
    report = explore(lambda once: agent(once, by_arguments), faults=("lost-response",))
    convicted_undisturbed(report, Verdict.OMISSION, expected=2, actual=1, key="account_1")


def test_a_key_of_the_intent() -> None:
    exactly_once(explore(lambda once: agent(once, by_intent), faults=("lost-response",)))
