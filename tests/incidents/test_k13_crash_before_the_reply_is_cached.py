"""K13: the row is committed, the process dies before its reply is cached, and the retry makes a second row.

The textbook case, which every harness has to catch. Report: ikyriak/IdempotentAPI#57.
"""

from __future__ import annotations

from pytest_once import Once, Verdict, explore
from tests.incidents.models import cell, convicted, database, exactly_once


def separate_cache(once: Once) -> None:
    once.count("shop.db", "SELECT order_id, count(*) FROM orders GROUP BY order_id")
    with (
        database(once, "shop", "orders(id INTEGER PRIMARY KEY, order_id)") as shop,
        database(once, "cache", "replies(key TEXT PRIMARY KEY, reply)") as cache,
    ):
        if cache.execute("SELECT 1 FROM replies WHERE key = 'key_1'").fetchone() is None:
            number = shop.execute("INSERT INTO orders(order_id) VALUES ('order_1')").lastrowid
            cache.execute("INSERT INTO replies VALUES ('key_1', ?)", (f"order {number}",))


def one_transaction(once: Once) -> None:
    once.count("shop.db", "SELECT order_id, count(*) FROM orders GROUP BY order_id")
    tables = "orders(id INTEGER PRIMARY KEY, order_id); replies(key TEXT PRIMARY KEY, reply)"
    with database(once, "shop", tables) as shop:
        if shop.execute("SELECT 1 FROM replies WHERE key = 'key_1'").fetchone() is None:
            shop.execute("BEGIN")
            number = shop.execute("INSERT INTO orders(order_id) VALUES ('order_1')").lastrowid
            shop.execute("INSERT INTO replies VALUES ('key_1', ?)", (f"order {number}",))
            shop.execute("COMMIT")


def test_a_crash_between_the_two_commits() -> None:
    report = explore(separate_cache, soft_faults=0)
    violation = convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="order_1")
    assert violation.schedule.crashes == 1
    assert cell(report, "crash", "cache.db INSERT INTO replies") == "2x"
    assert cell(report, "crash", "shop.db INSERT INTO orders") == "once"


def test_row_and_reply_in_one_transaction() -> None:
    exactly_once(explore(one_transaction, soft_faults=0))
