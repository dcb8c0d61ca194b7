"""Mails to a real SMTP server: what is accepted, what the sender hears of it, and what comes of trying again."""

from __future__ import annotations

import json
import smtplib
from collections.abc import Callable, Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from once_fakes.mail_server import MailServer
from once_fakes.presets.smtp import SMTP as CONTRACT
from pytest_once import Once, Verdict, explore
from pytest_once.boundaries import register_endpoint
from pytest_once.boundaries.smtp import CONNECT_FAULTS, DATA_FAULTS, SMTP
from pytest_once.ledger import Ledger
from tests.boundaries.fake_server import Seen, lived
from tests.engine.bodies import proven, put, state, tasks, told

pytest.importorskip("aiosmtpd")


class Mailbox:
    """Mails to a provider "mail", and what it has accepted."""

    def __init__(self, server: MailServer, ledger: Ledger) -> None:
        self._ledger = ledger
        ledger.record_provider("mail", CONTRACT.to_json(), None, None)
        self.port = server.address(ledger.path, "mail")[1]

    @property
    def mails(self) -> list[str]:
        return [json.loads(effect.payload)["content"].strip() for effect in self._ledger.effects()]


@pytest.fixture(scope="module")
def server() -> Iterator[MailServer]:
    server = MailServer()
    server.start()
    yield server
    server.close()


@pytest.fixture
def mailbox(server: MailServer, tmp_path: Path) -> Mailbox:
    return Mailbox(server, Ledger.create(tmp_path / "ledger.db"))


def send(port: int, text: str = "pay") -> str:
    message = EmailMessage()
    message["From"], message["To"] = "a@example.org", "b@example.org"
    message.set_content(text)
    with smtplib.SMTP("127.0.0.1", port) as client:
        client.send_message(message)
    return "sent"


def run(body: Callable[[], Any], port: int | None, fault: str | None = None) -> Seen:
    def registered() -> Any:
        if port is not None:
            register_endpoint(f"smtp://127.0.0.1:{port}", "mail")
        return body()

    return lived(registered, [SMTP], fault=fault)


OUTCOMES: dict[str | None, tuple[Any, list[str], list[Any]]] = {
    None: ("sent", ["pay"], ["mail", "DATA", 1, "reply 250"]),
    "refused": (["ConnectionRefusedError"], [], ["mail", "CONNECT", None, "ConnectionRefusedError"]),
    "lost-request": (["SMTPServerDisconnected"], [], ["mail", "DATA", None, "SMTPServerDisconnected"]),
    "lost-response": (["SMTPServerDisconnected"], ["pay"], ["mail", "DATA", 1, "SMTPServerDisconnected"]),
    "reset-response": (["SMTPServerDisconnected"], ["pay"], ["mail", "DATA", 1, "SMTPServerDisconnected"]),
    "error-before": (["SMTPDataError"], [], ["mail", "DATA", None, "reply 451"]),
    "error-after": (["SMTPDataError"], ["pay"], ["mail", "DATA", 1, "reply 451"]),
}


@pytest.mark.parametrize("fault", OUTCOMES)
def test_each_fault_does_what_it_says(fault: str | None, mailbox: Mailbox) -> None:
    """What the server accepted, and what the sender makes of it, through the real smtplib."""
    seen = run(lambda: send(mailbox.port), mailbox.port, fault)

    returned, mails, heard = OUTCOMES[fault]
    assert (seen.returned, mailbox.mails, seen.told) == (returned, mails, [heard])
    announced = ["mail CONNECT"] if fault == "refused" else ["mail CONNECT", "mail DATA"]
    assert seen.targets == [*announced, "after"]
    assert seen.recording.passed[0].faults == list(CONNECT_FAULTS)
    assert fault == "refused" or seen.recording.passed[1].faults == list(DATA_FAULTS)
    assert "smtplib.SMTP(" in seen.recording.passed[0].line


def test_smtplib_sends_nothing_again_by_itself(mailbox: Mailbox) -> None:
    """A second mail comes from a second call, on a new connection."""

    def body() -> Any:
        for _ in range(2):
            try:
                return send(mailbox.port)
            except smtplib.SMTPServerDisconnected:
                continue

    seen = run(body, mailbox.port, "lost-response")

    assert (seen.returned, mailbox.mails) == ("sent", ["pay", "pay"])
    assert seen.targets == ["mail CONNECT", "mail DATA"] * 2 + ["after"]


def test_a_mail_to_a_server_that_no_fake_stands_for_is_handed_over_first(mailbox: Mailbox) -> None:
    """Connecting changes nothing; the mail would."""
    seen = run(lambda: send(mailbox.port), None)

    assert [one[:2] for one in seen.outside] == [["a mail to", f"smtp://127.0.0.1:{mailbox.port}"]]
    assert seen.targets == ["after"]


def test_a_lost_reply_and_a_second_try_make_two_mails() -> None:
    """SMTP has no key: who sends again without asking sends twice, though no process has died."""

    def deliver(once: Once, *, asks: bool) -> None:
        port = once.provider("mail", contract="smtp").smtp[1]
        for attempt in range(3):
            # In the sender's "Sent" folder, say.
            if (asks or attempt == 0) and once.ledger.effects():
                return
            try:
                send(port)
                return
            except smtplib.SMTPServerDisconnected:
                continue

    report = explore(lambda once: deliver(once, asks=False), faults=["lost-response"])
    assert report.verdict is Verdict.DUPLICATE, told(report)
    assert (report.violations[0].expected, report.violations[0].actual) == (1, 2)
    assert report.violations[0].confirmed
    assert "lr@" in str(report.violations[0].schedule)

    assert proven(explore(lambda once: deliver(once, asks=True), faults=["lost-response"]))


def test_a_mail_that_was_marked_first_is_lost_in_a_crash() -> None:
    """The other order of the two steps: crash points lie between connecting, the mail and the mark."""

    def body(once: Once) -> None:
        port = once.provider("mail", contract="smtp").smtp[1]
        with tasks(once) as db:
            if state(db) is None:
                put(db, "sent")
                send(port)

    report = explore(body, soft_faults=0)
    assert report.verdict is Verdict.OMISSION, told(report)
