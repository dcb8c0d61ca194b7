"""Values made before the fork: every child has the same, a restarted process would have others."""

from __future__ import annotations

import secrets
import time
import uuid

import pytest

from pytest_once import Once, Verdict, explore, inherited

inherited.watch()
WORKER = str(uuid.uuid4())
TOKEN = secrets.token_hex(12)
STARTED = time.time()


@pytest.mark.parametrize("key", [WORKER, f"refund-{TOKEN}", f"o1-{STARTED}"], ids=["uuid", "token", "time"])
def test_a_key_made_at_import_is_no_pass(key: str) -> None:
    """It looks stable only because a fork keeps it."""

    def body(once: Once) -> None:
        once.provider("pay", contract="client_key").call("refund", {"order": "o1"}, key=key)

    report = explore(body, profile="crash")
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "ledger/receipts.key holds a random value or a time from before" in report.problem


def test_a_key_made_at_import_is_seen_although_no_provider_keeps_it() -> None:
    """Without deduplication the key is in no receipt, but it was sent."""

    def body(once: Once) -> None:
        once.provider("pay").call("refund", {"order": "o1"}, key=WORKER)

    report = explore(body, profile="crash", redeliver=0)
    assert "the Idempotency-Key" in report.problem


def test_an_owner_made_at_import_is_named_with_its_column() -> None:
    """A lease that its owner finds again after a restart would not be found by another owner."""

    def body(once: Once) -> None:
        (once.path / "owner.txt").write_text(WORKER)
        once.provider("pay", contract="client_key").call("refund", {"order": "o1"}, key="o1")

    report = explore(body, profile="crash")
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "owner.txt.content" in report.problem


def test_the_same_made_in_the_body_is_judged() -> None:
    """The corrected twin: made and stored in the incarnation, before it is used."""

    def body(once: Once) -> None:
        key_file = once.path / "key.txt"
        if not key_file.exists() or not key_file.read_text():
            key_file.write_text(str(uuid.uuid4()))
        once.provider("pay", contract="client_key").call("refund", {"order": "o1"}, key=key_file.read_text())

    assert explore(body, profile="crash").passed
