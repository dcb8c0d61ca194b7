"""H11: the mail is accepted, the final reply does not come in time, and the queue sends it again.

The recipient has several copies, the sender's log one. The remote side has no key, so the right outcome is to stop
and say that it is unknown. Reports: freescout-help-desk/freescout#5457, postalserver/postal#3016.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from pytest_once import Once, Verdict, explore, replay
from tests.incidents.models import by_fault_alone, cell, convicted, database, escalated

TABLES = "mails(id TEXT PRIMARY KEY, state); log(mail, sent)"


def queue(once: Once, *, retries: bool) -> None:
    server = once.provider("mta")
    with database(once, "queue", TABLES) as db:
        db.execute("INSERT OR IGNORE INTO mails VALUES ('mail_1', 'queued')")
        while row := db.execute("SELECT state FROM mails WHERE state IN ('queued', 'sending')").fetchone():
            if row[0] == "sending" and not retries:
                db.execute("UPDATE mails SET state = 'unknown'")
                break
            if row[0] == "queued":
                db.execute("UPDATE mails SET state = 'sending'")
            try:
                server.call("DATA", {"mail": "mail_1"})
            except TimeoutError:
                continue  # a soft failure
            db.execute("BEGIN")
            db.execute("UPDATE mails SET state = 'sent'")
            db.execute("INSERT INTO log VALUES ('mail_1', 1)")
            db.execute("COMMIT")
        if db.execute("SELECT 1 FROM mails WHERE state = 'unknown'").fetchone():
            once.claim("unknown")


def test_a_late_acknowledgement_is_a_second_copy(tmp_path: Path) -> None:
    def body(once: Once) -> None:
        queue(once, retries=True)

    report = explore(body, faults=("lost-response",), limits={"max_boundaries": 16})
    convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="mail_1")
    assert cell(report, "lost-response", "mta DATA") == "2x"
    late = next(schedule for schedule in by_fault_alone(report) if schedule.startswith("lr@"))
    replay(body, late, keep=tmp_path)
    with closing(sqlite3.connect(tmp_path / "queue.db")) as db:
        assert db.execute("SELECT count(*) FROM log").fetchone() == (1,)  # two copies, one line


def test_a_mail_without_an_answer_is_unknown() -> None:
    escalated(
        explore(
            lambda once: queue(once, retries=False),
            faults=("lost-response",),
            blocked=("unknown",),
            limits={"max_boundaries": 16},
        )
    )
