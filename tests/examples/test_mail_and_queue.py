"""The mailers and the consumers by themselves, without the harness: they must mean what the demonstrations say."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
import respx

from examples.mail import mailer_broken, mailer_escalating, mailer_keyed
from examples.mail.errors import MailDelayed, MailRejected, MailUnconfirmed
from examples.queue_consumer import consumer_broken, consumer_corrected
from examples.queue_consumer.queue import Message

URL = "http://mail.test"
Answer = Callable[[httpx.Request], httpx.Response]
MAILERS = [mailer_broken, mailer_keyed, mailer_escalating]
every_mailer = pytest.mark.parametrize("mailer", MAILERS, ids=lambda mailer: mailer.__name__.rpartition("_")[2])


class Mail:
    """A provider that accepts all mail. Faults happen after it accepted, one per arrival."""

    def __init__(self) -> None:
        self.keys: list[str | None] = []
        self.faults: list[httpx.Response | Exception] = []

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.keys.append(request.headers.get("Idempotency-Key"))
        fault = self.faults.pop(0) if self.faults else httpx.Response(200, json={"id": "1"})
        if isinstance(fault, Exception):
            raise fault
        return fault


LOST = httpx.ReadTimeout("response lost")


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock, which sleeping moves."""
    clock = [1_900_000_000.0]
    monkeypatch.setattr("time.time", lambda: clock[0])
    monkeypatch.setattr("time.sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    return clock


@pytest.fixture
def mail(respx_mock: respx.MockRouter, now: list[float]) -> Mail:
    fake = Mail()
    respx_mock.post(url__startswith=URL).mock(side_effect=fake.answer)
    return fake


def send(mailer: ModuleType, tmp_path: Path) -> None:
    """One life of the process."""
    mailer.Mailer(tmp_path / "mails.db", URL, "key").send_receipt("order_1", "ada@example.test")


@every_mailer
def test_without_faults_one_mail_is_sent(mailer: ModuleType, mail: Mail, tmp_path: Path) -> None:
    """A restart after completion answers from the table."""
    for _ in range(2):
        send(mailer, tmp_path)
    assert len(mail.keys) == 1


def test_every_attempt_has_the_mails_key(mail: Mail, tmp_path: Path) -> None:
    """In one life and in the next."""
    mail.faults = [LOST, httpx.Response(503), httpx.Response(409, json={"name": mailer_keyed.IN_PROGRESS})]
    with pytest.raises(MailDelayed):
        send(mailer_keyed, tmp_path)
    send(mailer_keyed, tmp_path)
    assert mail.keys == ["receipt/order_1"] * 4


def test_a_key_that_may_be_forgotten_is_not_relied_on(mail: Mail, now: list[float], tmp_path: Path) -> None:
    """The provider's promise ends after a day."""
    mail.faults = [LOST] * 3
    with pytest.raises(MailDelayed):
        send(mailer_keyed, tmp_path)
    now[0] += 23.5 * 3600
    with pytest.raises(MailUnconfirmed):
        send(mailer_keyed, tmp_path)
    assert len(mail.keys) == 3


@pytest.mark.parametrize("fault", [LOST, httpx.Response(500)], ids=["lost", "500"])
def test_where_there_is_no_key_the_mail_is_sent_at_most_once(
    fault: httpx.Response | Exception, mail: Mail, tmp_path: Path
) -> None:
    """Neither in this life nor in the next, and both say so."""
    mail.faults = [fault]
    for _ in range(2):
        with pytest.raises(MailUnconfirmed):
            send(mailer_escalating, tmp_path)
    assert len(mail.keys) == 1


@every_mailer
def test_a_refusal_is_raised_and_not_retried(mailer: ModuleType, mail: Mail, tmp_path: Path) -> None:
    """A 4xx answer is an answer."""
    mail.faults = [httpx.Response(422, json={"name": "validation_error"})]
    with pytest.raises(MailRejected, match="422"):
        send(mailer, tmp_path)
    assert len(mail.keys) == 1


class Queue:
    """Hands the same message out twice, as a queue does whose consumer died."""

    def __init__(self) -> None:
        self.waiting = [Message("m1", "order_1", "h1"), Message("m1", "order_1", "h2")]
        self.deleted: list[str] = []

    def receive(self, hidden_s: int) -> Message | None:
        return self.waiting.pop(0) if self.waiting else None

    def delete(self, message: Message) -> None:
        self.deleted.append(message.receipt_handle)


@pytest.mark.parametrize(("consumer", "shipments"), [(consumer_broken, 2), (consumer_corrected, 1)])
def test_only_an_inbox_knows_a_message_again(consumer: Any, shipments: int, now: list[float], tmp_path: Path) -> None:
    """Both delete it each time; one ships it each time."""
    queue = Queue()
    consumer.Consumer(tmp_path / "shop.db", queue).drain()
    with closing(sqlite3.connect(tmp_path / "shop.db")) as conn:
        assert conn.execute("SELECT COUNT(*) FROM shipments").fetchone() == (shipments,)
    assert queue.deleted == ["h1", "h2"]
    assert now[0] == 1_900_000_030.0  # it has waited for a message that somebody may have died with
