"""A10: the agent means to do the same thing twice, and a result cache keyed by arguments answers the second time.

Nothing fails; the second top-up never happens and looks successful. Report: crewAIInc/crewAI#6509.
"""

from __future__ import annotations

from collections.abc import Callable

from pytest_once import Once, Verdict, explore
from tests.incidents.models import convicted_undisturbed, database, exactly_once

PLAN = (("account_1", 5), ("account_1", 5))


def agent(once: Once, key_of: Callable[[int, str, int], str]) -> None:
    once.intend("account_1", 2)
    bank = once.provider("bank", contract="client_key")
    with database(once, "cache", "results(key TEXT PRIMARY KEY)") as db:
        for number, (account, amount) in enumerate(PLAN):
            key = key_of(number, account, amount)
            if not db.execute("SELECT 1 FROM results WHERE key = ?", (key,)).fetchone():
                bank.call("top up", {"account": account, "amount": amount}, key=key)
                db.execute("INSERT INTO results VALUES (?)", (key,))


def test_equal_arguments_are_taken_for_one_intent() -> None:
    report = explore(lambda once: agent(once, lambda number, account, amount: f"{account}/{amount}"), soft_faults=0)
    convicted_undisturbed(report, Verdict.OMISSION, expected=2, actual=1, key="account_1")


def test_a_key_for_each_place_in_the_plan() -> None:
    exactly_once(
        explore(lambda once: agent(once, lambda number, account, amount: f"step {number}/{account}"), soft_faults=0)
    )
