"""The parameters of a contract, explored: each is there because some code is right under one value and wrong under
another."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from once_fakes import CLIENT_KEY, CLIENT_KEY_24H, Contract, Provider
from pytest_once import Once, Verdict, explore

SEEN_AT_ONCE = Contract(name="seen_at_once", dedup="none", lookup="by_client_ref")
SEEN_LATER = Contract(name="seen_later", dedup="none", lookup="by_client_ref", visibility_lag_s=60)
BY_ORDER = Contract(name="by_order", dedup="natural_key", natural_key_field="client_ref")
WINDOW = Contract(name="window", dedup="content_window", window_s=30)

REFUND = {"client_ref": "order_1", "amount": 5}


def keyed(pay: Provider) -> None:
    pay.call("refund", REFUND, key="order_1").raise_for_status()


def looked_up(pay: Provider) -> None:
    if pay.find("order_1").status == 404:
        pay.call("refund", REFUND).raise_for_status()


def refusal_means_done(pay: Provider) -> None:
    if pay.call("refund", REFUND).status not in (200, 409):
        raise RuntimeError("try again later")


def body_of(act: Callable[[Provider], None], contract: Contract) -> Callable[[Once], None]:
    """Refund once, and note it in a table that survives."""

    def body(once: Once) -> None:
        pay = once.provider("pay", contract=contract)
        with closing(sqlite3.connect(once.path / "agent.db")) as database:
            database.execute("CREATE TABLE IF NOT EXISTS done(reference)")
            database.commit()
            if database.execute("SELECT 1 FROM done").fetchone() is None:
                act(pay)
                database.execute("INSERT INTO done VALUES ('order_1')")
                database.commit()

    return body


DAY = {"restart_after": ("0s", "25h")}
MINUTE = {"restart_after": ("61s",)}
SOFT = {"soft_faults": 1}


@pytest.mark.parametrize(
    ("act", "contract", "how", "verdict"),
    [
        (keyed, CLIENT_KEY, DAY, Verdict.EXACTLY_ONCE),
        (keyed, CLIENT_KEY_24H, DAY, Verdict.DUPLICATE),
        (keyed, Contract(name="effect_first", atomicity="effect_first"), {}, Verdict.DUPLICATE),
        (keyed, Contract(name="record_first", atomicity="record_first"), {}, Verdict.OMISSION),
        (refusal_means_done, BY_ORDER, DAY, Verdict.EXACTLY_ONCE),
        (refusal_means_done, WINDOW, MINUTE, Verdict.DUPLICATE),
        (looked_up, SEEN_AT_ONCE, {}, Verdict.EXACTLY_ONCE),
        (looked_up, SEEN_LATER, {}, Verdict.DUPLICATE),
        (looked_up, SEEN_LATER, MINUTE, Verdict.EXACTLY_ONCE),
        (looked_up, SEEN_AT_ONCE, {**SOFT, "faults": ("stale-read",)}, Verdict.DUPLICATE),
    ],
    ids=lambda value: getattr(value, "name", getattr(value, "__name__", None)),
)
def test_a_promise_decides_the_verdict(
    act: Callable[[Provider], None], contract: Contract, how: dict[str, Any], verdict: Verdict
) -> None:
    """A fake that keeps more than its contract's promise would let wrong code pass, here on what it really does."""
    report = explore(body_of(act, contract), **{"soft_faults": 0, **how})
    assert not report.problem, report.problem
    assert report.verdict is verdict
