"""Slack's messages: no key, a history that tells, and refusals with status 200."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from once_fakes.held import deliver
from pytest_once import Once, Verdict, explore
from pytest_once.ledger import Ledger
from tests.fakes.presets.wired import Wired

POST, HISTORY = "/api/chat.postMessage", "/api/conversations.history"


@pytest.fixture
def slack(ledger: Ledger) -> Wired:
    return Wired(ledger, "slack", {"authorization": "Bearer xoxb-1"})


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


def chat(looks_first: bool) -> Callable[[Once], None]:
    message = {"channel": "C1", "text": "Order 1 is on its way."}

    def body(once: Once) -> None:
        slack = once.provider("slack", contract="slack")
        headers = {"Authorization": "Bearer xoxb-1"}
        with slack.router, httpx.Client(base_url=slack.base_url, headers=headers) as client:
            if (
                not looks_first
                or not client.get(HISTORY, params={"channel": "C1"}).raise_for_status().json()["messages"]
            ):
                assert client.post(POST, json=message).raise_for_status().json()["ok"]

    return body


def test_without_keys_the_list_is_what_tells() -> None:
    """S4.3: sending again is convicted; looking first is enough against crashes, where look-ups show all at once."""
    assert explore(chat(False), profile="crash").verdict is Verdict.DUPLICATE
    report = explore(chat(True), profile="crash")
    assert (report.verdict, report.coverage) == (Verdict.EXACTLY_ONCE, "exhausted"), report.problem
