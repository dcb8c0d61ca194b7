"""H12: after a time-out the sender reconnects, and the new connection starts counting attempts from zero.

Report: pimalaya/core#46. The receiving server has no way to recognise a copy, so the right outcome is "unknown".
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pytest_once import Once, Verdict, explore
from tests.incidents.models import arrivals, asks_once, by_fault_alone, convicted, escalated

MAX_ATTEMPTS = 3
PATIENCE = {"max_boundaries": 40}


def send_mail(deliver: Callable[[], object]) -> None:
    attempt = 0
    while attempt < MAX_ATTEMPTS:
        attempt += 1
        try:
            deliver()
            return
        except TimeoutError:
            attempt = 0  # connected again: everything looks fine
    raise TimeoutError


def faulty(once: Once) -> None:
    server = once.provider("mta")
    asks_once(once, lambda: send_mail(lambda: server.call("DATA", {"to": "ada@example.org"})))


def careful(once: Once) -> None:
    server = once.provider("mta")
    asks_once(once, lambda: server.call("DATA", {"to": "ada@example.org"}))


def test_copies_grow_for_as_long_as_the_replies_are_lost(tmp_path: Path) -> None:
    report = explore(faulty, blocked=("unknown",), faults=("lost-response",), limits=PATIENCE)
    convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="ada@example.org")
    never_acknowledged = by_fault_alone(report)[0].replace("lr@", "LR@")
    assert (
        len(arrivals(faulty, never_acknowledged, tmp_path, blocked=("unknown",), limits=PATIENCE)) > 10 * MAX_ATTEMPTS
    )


def test_a_mail_whose_reply_is_lost_is_not_sent_again() -> None:
    escalated(explore(careful, blocked=("unknown",), faults=("lost-response",)))
