"""Resend: keys for 24 h, and its own error documents."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest

from once_fakes import Contract, contracts
from pytest_once import Once, Verdict, explore
from pytest_once.ledger import Ledger
from tests.fakes.presets.wired import Wired

MAIL = {"from": "a@acme.test", "to": "ada@example.test", "subject": "Receipt", "text": "Thanks."}


@pytest.fixture
def resend(ledger: Ledger) -> Wired:
    return Wired(ledger, "resend", {"authorization": "Bearer re_1"})


def refused(reply: Any) -> tuple[int, str]:
    assert reply.body.keys() == {"statusCode", "name", "message"}
    assert reply.body["statusCode"] == reply.status
    return reply.status, reply.body["name"]


def test_a_key_is_known_for_a_day(resend: Wired) -> None:
    """The same answer within 24 h, as documented, and another mail after that."""
    first = resend.json("/emails", MAIL, idempotency_key="k")
    resend.pass_time(86399)
    again = resend.json("/emails", MAIL, idempotency_key="k")
    assert (first.status, again.content) == (200, first.content)
    assert first.body.keys() == {"id"}
    resend.pass_time(1)
    later = resend.json("/emails", MAIL, idempotency_key="k")
    assert (later.status, later.body == first.body, resend.effects) == (200, False, 2)


def test_refusals_are_resends_own(resend: Wired) -> None:
    """Clients tell them apart by name: one is to be retried, the other never."""
    resend.json("/emails", MAIL, idempotency_key="k")
    other = resend.json("/emails", {**MAIL, "subject": "Another"}, idempotency_key="k")
    assert refused(other) == (409, "invalid_idempotent_request")
    resend.json("/emails", MAIL, idempotency_key="slow", once_order="begin")
    concurrent = resend.json("/emails", MAIL, idempotency_key="slow")
    assert refused(concurrent) == (409, "concurrent_idempotent_requests")
    for key in ("k" * 257, "schlüssel"):
        assert refused(resend.json("/emails", MAIL, idempotency_key=key)) == (400, "invalid_idempotency_key")
    assert resend.json("/emails", MAIL, idempotency_key="k" * 256).status == 200
    assert refused(resend.json("/emails", MAIL, authorization="")) == (401, "missing_api_key")
    assert refused(resend.ask("GET", "/domains")) == (404, "not_found")
    assert refused(resend.ask("DELETE", "/emails")) == (405, "method_not_allowed")
    assert refused(resend.json("/emails", [MAIL])) == (400, "validation_error")


@pytest.mark.parametrize(
    ("changed", "answer"),
    [
        ({"to": None}, (422, "missing_required_field")),
        ({"from": ""}, (422, "missing_required_field")),
        ({"text": ""}, (422, "missing_required_field")),
        ({"to": "nobody"}, (400, "validation_error")),
        ({"to": ["a@b.test"] * 51}, (400, "validation_error")),
        ({"subject": 5}, (400, "validation_error")),
    ],
)
def test_an_invalid_mail_takes_no_key(resend: Wired, changed: dict[str, Any], answer: tuple[int, str]) -> None:
    """What was never accepted may be corrected and sent under the same key."""
    assert refused(resend.json("/emails", {**MAIL, **changed}, idempotency_key="k")) == answer
    assert resend.json("/emails", MAIL, idempotency_key="k").status == 200


def test_what_was_sent_can_be_looked_up(resend: Wired) -> None:
    """By id in full; in lists the newest first and without bodies."""
    sent = [resend.json("/emails", {**MAIL, "subject": subject}).body["id"] for subject in ("one", "two")]
    found = resend.ask("GET", f"/emails/{sent[0]}")
    assert (found.body["id"], found.body["to"], found.body["text"]) == (sent[0], ["ada@example.test"], "Thanks.")
    listed = resend.ask("GET", "/emails").body
    assert [mail["id"] for mail in listed["data"]] == sent[::-1]
    assert "text" not in listed["data"][0]
    assert refused(resend.ask("GET", "/emails/unknown")) == (404, "not_found")


def mailing(key: Callable[[], str], contract: Contract) -> Callable[[Once], None]:
    def body(once: Once) -> None:
        mail = once.provider("mail", contract=contract)
        headers = {"Authorization": "Bearer re_1", "Idempotency-Key": key()}
        with mail.router:
            httpx.post(f"{mail.base_url}/emails", json=MAIL, headers=headers).raise_for_status()

    return body


KEPT = replace(contracts.resend, name="kept", retention_s=None)


@pytest.mark.parametrize(
    ("key", "contract", "restart_after", "verdict"),
    [
        (lambda: uuid.uuid4().hex, contracts.resend, ("0s",), Verdict.DUPLICATE),
        (lambda: "receipt", contracts.resend, ("25h",), Verdict.DUPLICATE),
        (lambda: "receipt", KEPT, ("25h",), Verdict.EXACTLY_ONCE),
    ],
    ids=["key of the attempt", "a day later", "key of the mail"],
)
def test_a_key_is_the_mails_and_good_for_a_day(
    key: Callable[[], str], contract: Contract, restart_after: tuple[str, ...], verdict: Verdict
) -> None:
    """S3.2: a key per attempt is convicted, and so is one that outlives its receipt; while it is kept, it is enough."""
    report = explore(mailing(key, contract), profile="crash", restart_after=restart_after)
    assert report.verdict is verdict, report.problem
    assert report.coverage == "exhausted"
