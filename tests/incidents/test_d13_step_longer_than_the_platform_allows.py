"""D13: the step mails a report and then works on past the platform's limit, so it is stopped before its result counts.

Three attempts, three mails, every day: a repetition that needs no bad luck. Report: recoupable/app#1918.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from once_fakes import Provider
from pytest_once import Once, Verdict, explore
from tests.incidents.models import convicted_undisturbed, database, exactly_once

LIMIT_S = 800.0
ATTEMPTS = 3


class Stopped(Exception):
    """The platform's limit is reached."""


def platform(step: Callable[[Callable[[float], None]], None]) -> bool:
    """Runs a step up to three times; `work` is stopped at the limit."""
    for _ in range(ATTEMPTS):
        begun_s = time.time()

        def work(seconds: float, begun_s: float = begun_s) -> None:
            time.sleep(min(seconds, begun_s + LIMIT_S - time.time()))
            if time.time() >= begun_s + LIMIT_S:
                raise Stopped

        try:
            step(work)
            return True
        except Stopped:
            time.sleep(60)
    return False


def one_step(once: Once) -> None:
    def step(work: Callable[[float], None]) -> None:
        once.provider("mail").call("report", {"report": "report_1"})
        work(1200)

    platform(step)


def send(mail: Provider) -> None:
    mail.call("report", {"report": "report_1"}, key="report_1")


def two_steps(once: Once) -> None:
    """The mail is a step of its own, with a key; the long tail is cut to what fits."""
    mail = once.provider("mail", contract="client_key")
    with database(once, "engine", "steps(name TEXT PRIMARY KEY)") as db:
        if not db.execute("SELECT 1 FROM steps WHERE name = 'mail'").fetchone():
            platform(lambda work: send(mail))
            db.execute("INSERT INTO steps VALUES ('mail')")
        for part in ("first", "second"):
            if not db.execute("SELECT 1 FROM steps WHERE name = ?", (part,)).fetchone():
                platform(lambda work: work(600))
                db.execute("INSERT INTO steps VALUES (?)", (part,))


def test_every_attempt_mails_and_none_ends() -> None:
    report = explore(one_step, soft_faults=0, keys=["report_1"], max_states=20)
    convicted_undisturbed(report, Verdict.DUPLICATE, expected=1, actual=3, key="report_1")


def test_a_mail_that_is_a_step_of_its_own() -> None:
    exactly_once(explore(two_steps, soft_faults=0))
