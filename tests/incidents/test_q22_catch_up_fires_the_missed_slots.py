"""Q22: the scheduler was down for four days; on its return it fires the daily mail four times.

Whether that is wrong depends on the logical key: the mailing, or its day. The test has to say. Report:
coldfront/coldfront#464.
"""

from __future__ import annotations

from pytest_once import Once, Verdict, explore
from tests.incidents.models import convicted_undisturbed, database, exactly_once

TODAY = 5


def scheduler(once: Once, *, coalesces: bool) -> None:
    mail = once.provider("mail", contract="client_key")
    with database(once, "scheduler", "jobs(name TEXT PRIMARY KEY, next_day)") as db:
        db.execute("INSERT OR IGNORE INTO jobs VALUES ('digest', 2)")  # it went down on day 1
        day = db.execute("SELECT next_day FROM jobs").fetchone()[0]
        if coalesces and day < TODAY:
            day = TODAY
        while day <= TODAY:
            mail.call("send", {"mailing": "digest", "day": f"day_{day}"}, key=f"digest/{day}")
            day += 1
            db.execute("UPDATE jobs SET next_day = ?", (day,))


def test_as_one_mailing_four_mails_are_three_too_many() -> None:
    report = explore(lambda once: scheduler(once, coalesces=False), soft_faults=0, keys={"digest": 1})
    convicted_undisturbed(report, Verdict.DUPLICATE, expected=1, actual=4, key="digest")


def test_as_a_mail_a_day_four_days_are_four_mails() -> None:
    days = [f"day_{day}" for day in range(2, TODAY + 1)]
    exactly_once(explore(lambda once: scheduler(once, coalesces=False), soft_faults=0, keys=days))


def test_coalesced_it_is_one_mailing() -> None:
    exactly_once(explore(lambda once: scheduler(once, coalesces=True), soft_faults=0, keys={"digest": 1}))
