"""K04: one record is lock and reply, a throw deletes it, and every status is cached. Three faults, three verdicts.

(a) a crash after the claim refuses every retry; (b) the card is charged, the mail throws, the claim is deleted, the
retry charges again; (c) an error reply is cached and replayed. Report: pathosDev/actor-ts#984.
"""

from __future__ import annotations

from collections.abc import Callable

from once_fakes import ProviderError, Reply
from pytest_once import Once, Report, Verdict, explore
from tests.incidents.models import NoAnswer, cell, convicted, database, exactly_once, told


class InProgress(Exception):
    """409: a request with this key is being handled."""


def middleware(once: Once, handler: Callable[[], int], *, deletes_on_throw: bool) -> int:
    with database(once, "records", "records(key TEXT PRIMARY KEY, status)") as db:
        row = db.execute("SELECT status FROM records").fetchone()
        if row is not None:
            if row[0] is None:
                raise InProgress
            return int(row[0])
        db.execute("INSERT INTO records VALUES ('order_1', NULL)")
        try:
            status = handler()
        except Exception:
            if deletes_on_throw:
                db.execute("DELETE FROM records")
            raise
        db.execute("UPDATE records SET status = ?", (status,))
        return status


def capture(once: Once, key: str | None) -> Reply:
    return once.provider("card", contract="client_key").call("capture", {"order": "order_1"}, key=key)


def mail(once: Once, key: str | None) -> Reply:
    return once.provider("mail", contract="client_key").call("receipt", {"order": "order_1"}, key=key)


def throws(once: Once) -> int:
    capture(once, None).raise_for_status()
    mail(once, None).raise_for_status()
    return 200


def answers_with_a_status(once: Once) -> int:
    return capture(once, "order_1").status


def shop(once: Once, handler: Callable[[Once], int]) -> None:
    status = middleware(once, lambda: handler(once), deletes_on_throw=True)
    if status >= 400:
        raise NoAnswer


def explored(handler: Callable[[Once], int]) -> Report:
    return explore(lambda once: shop(once, handler), faults=("error-before",), redeliver=0)


def test_three_faults_in_the_life_of_a_claim() -> None:
    report = explored(throws)
    convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="card capture")
    assert cell(report, "crash", "card capture") == "stuck"  # (a)
    assert cell(report, "error-before", "mail receipt") == "2x"  # (b)
    assert {violation.verdict for violation in report.violations} == {Verdict.DUPLICATE, Verdict.STUCK}, told(report)


def test_a_cached_error_is_replayed_for_ever() -> None:
    report = explored(answers_with_a_status)
    convicted(report, Verdict.STUCK, expected=1, actual=0, key="card capture")
    assert cell(report, "error-before", "card capture") == "stuck"  # (c)


def test_keys_at_the_effects_and_no_record_that_refuses() -> None:
    def body(once: Once) -> None:
        with database(once, "records", "records(key TEXT PRIMARY KEY)") as db:
            if db.execute("SELECT 1 FROM records").fetchone():
                return
            try:
                capture(once, "order_1/capture").raise_for_status()
                mail(once, "order_1/receipt").raise_for_status()
            except ProviderError:
                raise NoAnswer from None
            db.execute("INSERT INTO records VALUES ('order_1')")

    exactly_once(explore(body, faults=("error-before",), redeliver=0))
