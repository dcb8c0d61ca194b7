"""S08: the transaction says "notified" and commits, the enqueueing after it fails, and the retry returns early.

The flag hides the loss. Report: RealOrangeOne/django-tasks#189.
"""

from __future__ import annotations

from pytest_once import Once, Verdict, explore
from tests.incidents.models import cell, convicted, database, exactly_once

TABLES = "users(id TEXT PRIMARY KEY, notified); outbox(mail TEXT PRIMARY KEY, sent)"


def view(once: Once) -> None:
    queue = once.provider("queue", contract="client_key")
    with database(once, "app", TABLES) as db:
        if db.execute("SELECT notified FROM users").fetchone():
            return
        db.execute("INSERT INTO users VALUES ('user_1', 1)")
        queue.call("enqueue", {"mail": "welcome user_1"}, key="user_1")


def view_with_outbox(once: Once) -> None:
    queue = once.provider("queue", contract="client_key")
    with database(once, "app", TABLES) as db:
        if not db.execute("SELECT notified FROM users").fetchone():
            db.execute("BEGIN")
            db.execute("INSERT INTO users VALUES ('user_1', 1)")
            db.execute("INSERT INTO outbox VALUES ('welcome user_1', 0)")
            db.execute("COMMIT")
        for (mail,) in db.execute("SELECT mail FROM outbox WHERE NOT sent").fetchall():
            queue.call("enqueue", {"mail": mail}, key=mail)
            db.execute("UPDATE outbox SET sent = 1 WHERE mail = ?", (mail,))


def test_the_flag_is_set_and_nothing_was_enqueued() -> None:
    report = explore(view, faults=("refused",))
    convicted(report, Verdict.OMISSION, expected=1, actual=0, key="user_1")
    assert cell(report, "refused", "queue enqueue") == "0x"
    assert cell(report, "crash", "queue enqueue") == "0x"


def test_flag_and_message_in_one_transaction() -> None:
    exactly_once(explore(view_with_outbox, faults=("refused",)))
