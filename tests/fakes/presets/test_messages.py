"""Twilio's and Slack's messages: no keys, lists that tell, and refusals in their own ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from once_fakes import Reply
from once_fakes.held import deliver
from pytest_once import Once, Verdict, explore
from pytest_once.ledger import Ledger
from tests.fakes.presets.wired import Wired

MESSAGES = "/2010-04-01/Accounts/AC1/Messages.json"
SMS = {"To": "+15558675310", "From": "+15017122661", "Body": "Your order is on its way."}
POST, HISTORY = "/api/chat.postMessage", "/api/conversations.history"


@pytest.fixture
def twilio(ledger: Ledger) -> Wired:
    return Wired(ledger, "twilio", {"authorization": "Basic QUMxOjE="})


@pytest.fixture
def slack(ledger: Ledger) -> Wired:
    return Wired(ledger, "slack", {"authorization": "Bearer xoxb-1"})


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


def test_slack_posts_and_tells_its_history(slack: Wired) -> None:
    """As JSON or as a form, token in the header or in the body; metadata is the app's own reference."""
    metadata = {"event_type": "order", "event_payload": {"id": "1"}}
    posted = slack.json(POST, {"channel": "C1", "text": "one", "metadata": metadata})
    body = b"token=xoxb-1&channel=C1&text=two"
    slack.ask("POST", POST, body, authorization="", content_type="application/x-www-form-urlencoded")
    slack.json(POST, {"channel": "C2", "text": "elsewhere"})
    assert (posted.body["ok"], posted.body["message"]["ts"]) == (True, posted.body["ts"])
    history = slack.ask("GET", f"{HISTORY}?channel=C1&include_all_metadata=true").body
    assert [one["text"] for one in history["messages"]] == ["two", "one"]
    assert history["messages"][1]["metadata"] == metadata
    assert slack.form(HISTORY, {"channel": "C1"}).body == history
    assert "xoxb" not in slack.ledger.effects()[1].payload


def test_slack_refuses_with_status_200(slack: Wired) -> None:
    """Code that looks at the status only takes a refusal for a message."""
    answers = [
        slack.json(POST, {"text": "x"}),
        slack.json(POST, {"channel": "C1"}),
        slack.json(POST, {"channel": "C1", "text": "x" * 40_001}),
        slack.json(POST, [1]),
        slack.ask("POST", POST, b"\xff", content_type="application/x-www-form-urlencoded"),
        slack.json(POST, {"channel": "C1", "text": "x"}, authorization=""),
        slack.json("/api/chat.update", {}),
        slack.ask("GET", HISTORY),
    ]
    assert {(answer.status, answer.body["ok"]) for answer in answers} == {(200, False)}
    assert [answer.body["error"] for answer in answers] == [
        "channel_not_found",
        "no_text",
        "msg_too_long",
        "invalid_json",
        "invalid_form_data",
        "not_authed",
        "unknown_method",
        "channel_not_found",
    ]
    assert slack.effects == 0


def test_a_question_held_up_asks_nothing(slack: Wired, ledger: Ledger) -> None:
    """Slack takes questions by POST, so the network may hold one up; arriving late it changes nothing."""
    body = b'{"channel": "C1"}'
    headers = {"authorization": "Bearer xoxb-1", "content-type": "application/json"}
    ledger.hold("slack", f"POST {HISTORY}", {"method": "POST", "path": HISTORY, "headers": headers, "body": body})
    assert deliver(ledger, 1) is None
    assert ledger.in_flight() == []


# Explored: the same text, sent again or looked for first.


def sms(looks_first: bool) -> Callable[[Once], None]:
    def body(once: Once) -> None:
        twilio = once.provider("twilio", contract="twilio")
        with twilio.router, httpx.Client(base_url=twilio.base_url, auth=("AC1", "1")) as client:
            if not looks_first or not _listed(client.get(MESSAGES, params={"To": SMS["To"]}), "messages"):
                client.post(MESSAGES, data=SMS).raise_for_status()

    return body


def chat(looks_first: bool) -> Callable[[Once], None]:
    message = {"channel": "C1", "text": "Order 1 is on its way."}

    def body(once: Once) -> None:
        slack = once.provider("slack", contract="slack")
        headers = {"Authorization": "Bearer xoxb-1"}
        with slack.router, httpx.Client(base_url=slack.base_url, headers=headers) as client:
            if not looks_first or not _listed(client.get(HISTORY, params={"channel": "C1"}), "messages"):
                assert client.post(POST, json=message).raise_for_status().json()["ok"]

    return body


def _listed(response: httpx.Response, name: str) -> list[Any]:
    found: list[Any] = response.raise_for_status().json()[name]
    return found


@pytest.mark.parametrize("message", [sms, chat])
def test_without_keys_the_list_is_what_tells(message: Callable[[bool], Callable[[Once], None]]) -> None:
    """S4.3: sending again is convicted; looking first is enough against crashes, where look-ups show all at once."""
    assert explore(message(False), profile="crash").verdict is Verdict.DUPLICATE
    report = explore(message(True), profile="crash")
    assert (report.verdict, report.coverage) == (Verdict.EXACTLY_ONCE, "exhausted"), report.problem
