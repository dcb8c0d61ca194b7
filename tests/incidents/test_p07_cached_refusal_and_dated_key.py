"""P07: a refusal for a passing reason is remembered under the key and replayed to every retry.

The fix appends the date to the key, so an attempt with an unknown outcome before midnight is made again after it.
Report: BasedHardware/omi#7184.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from pytest_once import Once, Verdict, explore
from tests.incidents.forgetful import Forgetful
from tests.incidents.models import NoAnswer, cell, convicted, database, exactly_once

DAY_S = 86400.0


def stable() -> str:
    return "transfer_1"


def dated() -> str:
    return time.strftime("transfer_1/%Y-%m-%d", time.gmtime())


def transfer(once: Once, key: Callable[[], str], memory_s: float | None, *, stores_refusals: bool = True) -> None:
    def balance_is_low() -> bool:
        try:
            once.tool(lambda: None, name="balance", counted=False)()
        except ConnectionRefusedError:
            return True
        return False

    psp = Forgetful(once, memory_s, balance_is_low)
    with database(once, "app", "transfers(id TEXT PRIMARY KEY)") as db:
        if db.execute("SELECT 1 FROM transfers").fetchone():
            return
        if psp.act(key(), "transfer_1", stores_refusals=stores_refusals) != 200:
            raise NoAnswer
        db.execute("INSERT INTO transfers VALUES ('transfer_1')")


@pytest.mark.slow
def test_the_refusal_outlives_its_reason() -> None:
    report = explore(lambda once: transfer(once, stable, None), faults=("refused",), soft_faults=2)
    convicted(report, Verdict.STUCK, expected=1, actual=0, key="transfer_1")
    assert cell(report, "refused", "balance") == "stuck"


@pytest.mark.slow
def test_a_key_with_a_date_pays_again_on_the_next_day() -> None:
    report = explore(lambda once: transfer(once, dated, DAY_S), faults=("lost-response",), restart_after=("0s", "25h"))
    violation = convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="transfer_1")
    assert "w90000" in str(violation.schedule)


def test_refusals_are_not_remembered_and_the_key_is_for_ever() -> None:
    exactly_once(
        explore(lambda once: transfer(once, stable, None, stores_refusals=False), faults=("refused", "lost-response"))
    )
