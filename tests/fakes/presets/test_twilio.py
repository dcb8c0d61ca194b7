"""Twilio's messages: no key, a list that tells, and codes for what is refused."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from once_fakes import Reply
from pytest_once import Once, Verdict, explore
from pytest_once.ledger import Ledger
from tests.fakes.presets.wired import Wired

MESSAGES = "/2010-04-01/Accounts/AC1/Messages.json"
SMS = {"To": "+15558675310", "From": "+15017122661", "Body": "Your order is on its way."}


@pytest.fixture
def twilio(ledger: Ledger) -> Wired:
    return Wired(ledger, "twilio", {"authorization": "Basic QUMxOjE="})


def test_twilio_lists_what_was_sent(twilio: Wired) -> None:
    """By recipient, of one account, the newest first."""
    first, second = twilio.form(MESSAGES, SMS), twilio.form(MESSAGES, SMS)
    twilio.form(MESSAGES, {**SMS, "To": "+15558675311"})
    twilio.form(MESSAGES.replace("AC1", "AC2"), SMS)
    assert (first.status, first.body["status"], first.body["sid"][:2]) == (201, "queued", "SM")
    listed = twilio.ask("GET", f"{MESSAGES}?To=%2B15558675310&DateSent=2031-03-04").body
    assert [one["sid"] for one in listed["messages"]] == [second.body["sid"], first.body["sid"]]
    found = twilio.ask("GET", first.body["uri"])
    assert found.body == first.body


def test_twilio_refuses_with_its_codes(twilio: Wired) -> None:
    """Clients tell errors apart by code."""

    def code(reply: Reply) -> tuple[int, int]:
        assert reply.body.keys() == {"code", "message", "more_info", "status"}
        return reply.status, reply.body["code"]

    without = [{name: SMS[name] for name in SMS if name != left_out} for left_out in SMS]
    answers = [
        *(twilio.form(MESSAGES, fields) for fields in without),
        twilio.form(MESSAGES, {**SMS, "To": "5558675310"}),
        twilio.form(MESSAGES, {**SMS, "Body": "x" * 1601}),
        twilio.ask("POST", MESSAGES, b"Body=x", authorization=""),
        twilio.ask("GET", "/2010-04-01/Accounts/AC1/Calls.json"),
        twilio.ask("GET", MESSAGES.replace(".json", "/SM0.json")),
        twilio.ask("DELETE", MESSAGES),
    ]
    assert [code(answer) for answer in answers] == [
        (400, 21604),
        (400, 21603),
        (400, 21602),
        (400, 21211),
        (400, 21617),
        (401, 20003),
        (404, 20404),
        (404, 20404),
        (405, 20004),
    ]
    assert twilio.effects == 0


def sms(looks_first: bool) -> Callable[[Once], None]:
    def body(once: Once) -> None:
        twilio = once.provider("twilio", contract="twilio")
        with twilio.router, httpx.Client(base_url=twilio.base_url, auth=("AC1", "1")) as client:
            if (
                not looks_first
                or not client.get(MESSAGES, params={"To": SMS["To"]}).raise_for_status().json()["messages"]
            ):
                client.post(MESSAGES, data=SMS).raise_for_status()

    return body


def test_without_keys_the_list_is_what_tells() -> None:
    """S4.3: sending again is convicted; looking first is enough against crashes, where look-ups show all at once."""
    assert explore(sms(False), profile="crash").verdict is Verdict.DUPLICATE
    report = explore(sms(True), profile="crash")
    assert (report.verdict, report.coverage) == (Verdict.EXACTLY_ONCE, "exhausted"), report.problem
