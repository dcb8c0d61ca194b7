"""S13: a reader holds on while the writer commits; COMMIT says "locked", and the transaction stays open.

Three policies on a real SQLite file: repeat the COMMIT, run the body again inside the open transaction, or roll back
first. Only the second is wrong. Reports: duckdb/ducklake#1309, desplega-ai/agent-swarm#1229.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing

from pytest_once import Once, Verdict, explore
from tests.incidents.models import convicted_undisturbed, database, exactly_once


def repeats_the_commit(db: sqlite3.Connection) -> None:
    db.execute("COMMIT")


def repeats_the_body(db: sqlite3.Connection) -> None:
    db.execute("INSERT INTO payments(payment) VALUES ('payment_1')")
    db.execute("COMMIT")


def rolls_back_first(db: sqlite3.Connection) -> None:
    db.execute("ROLLBACK")
    db.execute("BEGIN")
    repeats_the_body(db)


def writer(once: Once, policy: Callable[[sqlite3.Connection], None]) -> None:
    once.count("bank.db", "SELECT payment, count(*) FROM payments GROUP BY payment")
    with (
        database(once, "bank", "payments(payment)") as db,
        closing(sqlite3.connect(once.path / "bank.db", timeout=0, isolation_level=None)) as reader,
    ):
        db.execute("PRAGMA busy_timeout = 0")
        if db.execute("SELECT 1 FROM payments").fetchone():
            return
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM payments").fetchone()
        db.execute("BEGIN")
        db.execute("INSERT INTO payments(payment) VALUES ('payment_1')")
        try:
            db.execute("COMMIT")
        except sqlite3.OperationalError:
            reader.execute("COMMIT")
            policy(db)
        else:
            raise AssertionError("the reader was to be in the way")


def test_the_body_in_the_open_transaction_inserts_twice() -> None:
    report = explore(lambda once: writer(once, repeats_the_body), soft_faults=0, keys=["payment_1"])
    convicted_undisturbed(report, Verdict.DUPLICATE, expected=1, actual=2, key="payment_1")


def test_the_commit_alone_or_a_rollback_first_inserts_once() -> None:
    exactly_once(explore(lambda once: writer(once, repeats_the_commit), soft_faults=0, keys=["payment_1"]))
    exactly_once(explore(lambda once: writer(once, rolls_back_first), soft_faults=0, keys=["payment_1"]))
