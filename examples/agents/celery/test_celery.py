"""Celery: a message that is acknowledged late is delivered again, and a task with `autoretry_for` is run again at once.

The test is the broker: it delivers the message until a worker has acknowledged it, by `once.caller`.
"""

from __future__ import annotations

import pytest

from examples.agents.celery.worker import app, deliver
from examples.agents.refunds import (
    AFTER_THE_LEASE,
    AT_ONCE,
    DECIDES_NOTHING,
    WITHOUT_KEYS,
    protected,
    reconcile,
    unprotected,
)
from pytest_once import Once
from pytest_once.reference.databases import SQLite


@pytest.mark.once_effect(faults=("lost-response",))
@pytest.mark.convicted("DUPLICATE", because="a lost worker has not acknowledged, and autoretry_for repeats the task")
def test_a_task_that_is_acknowledged_late_refunds_twice(once: Once) -> None:
    """S3.1: at least once is what acks_late promises."""
    payments = once.provider("payments", contract="client_key")
    once.caller("message_1", deliver, app(unprotected(payments.url)))


@pytest.mark.once_effect(faults=("lost-response",), restart_after=AFTER_THE_LEASE, ignore=DECIDES_NOTHING)
def test_a_task_behind_the_gate_refunds_once(once: Once, gates: SQLite) -> None:
    """S4.8, S4.11: delivered again, it gets the receipt."""
    payments = once.provider("payments", contract="client_key")
    once.caller("message_1", deliver, app(protected(payments.url, gates)))


@pytest.mark.once_effect(faults=("refused", "lost-response"), restart_after=AFTER_THE_LEASE, ignore=DECIDES_NOTHING)
def test_without_keys_the_gate_waits_for_the_look_up(once: Once, gates: SQLite) -> None:
    """S3.9, S4.6: no answer is UNKNOWN and refuses; the look-up confirms it later, without a second refund."""
    payments = once.provider("payments", contract=WITHOUT_KEYS)
    reconcile(payments.url, gates)
    once.caller("message_1", deliver, app(protected(payments.url, gates, AT_ONCE)))
