"""Mail over real SMTP: an accepted mail is an effect, and a lost answer is a second one."""

from __future__ import annotations

import os
import signal
import smtplib
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from pathlib import Path
from typing import Any

import pytest

import once_fakes.mail_server as mail_server_module
from once_fakes import CLIENT_KEY, Provider
from once_fakes.mail_server import MailServer
from once_fakes.mails import mail_payload
from once_fakes.presets.smtp import SMTP
from pytest_once import Once, Verdict, explore
from pytest_once.ledger import Ledger
from tests.engine.bodies import put, state, tasks, told

pytest.importorskip("aiosmtpd")


def mail(text: str = "pay", order: str | None = "o_1", attachment: bytes | None = None) -> EmailMessage:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "shop@example.org", "b@example.org", "Order shipped"
    message["Message-ID"], message["Date"] = make_msgid(), formatdate()
    if order is not None:
        message["X-Order"] = order
    message.set_content(text)
    if attachment is not None:
        message.add_attachment(attachment, maintype="application", subtype="pdf", filename="bill.pdf")
    return message


def send(where: tuple[str, int], message: EmailMessage) -> None:
    with smtplib.SMTP(*where) as client:
        client.send_message(message)


@pytest.fixture(scope="module")
def server() -> Iterator[MailServer]:
    server = MailServer()
    server.start()
    yield server
    server.close()


def provider(server: MailServer, ledger: Ledger, name: str = "mail", key_field: str | None = None) -> Provider:
    return Provider(name, SMTP, ledger, str, None, key_field, lambda what, name: server.address(ledger.path, name))


def test_each_accepted_mail_is_an_effect(server: MailServer, ledger: Ledger) -> None:
    """The same mail twice is two; what is one attempt's own is no part of it, so both are the same intent."""
    where = provider(server, ledger, key_field="x-order").smtp
    for _ in range(2):
        send(where, mail(attachment=b"\x00bill"))
    first, second = ledger.effects()
    assert (first.operation, first.logical_key, first.provider) == ("SEND", "o_1", "mail")
    assert first.payload == second.payload
    assert "Order shipped" in first.payload
    assert "message-id" not in first.payload.lower()
    assert "bill.pdf" in first.payload
    assert [arrival.outcome for arrival in ledger.arrivals()] == ["executed", "executed"]


def test_each_provider_has_a_port_and_a_ledger_of_its_own(server: MailServer, ledger: Ledger, tmp_path: Path) -> None:
    """Mails of one test never count in another; a port that is given up accepts nothing."""
    other = Ledger.create(tmp_path / "other.db")
    first, second = provider(server, ledger).smtp, provider(server, other, "post").smtp
    send(second, mail())
    assert (len(ledger.effects()), len(other.effects())) == (0, 1)
    server.forget(first[1])
    with pytest.raises(ConnectionRefusedError):
        send(first, mail())


def test_the_server_keeps_to_the_protocol(server: MailServer, ledger: Ledger) -> None:
    """Wrong order 503, unknown commands 500, a mail too large 552: none of them is an effect (RFC 5321)."""
    host, port = provider(server, ledger).smtp
    with socket.create_connection((host, port), 10) as client, client.makefile("rwb") as stream:

        def answer(command: bytes) -> bytes:
            stream.write(command + b"\r\n")
            stream.flush()
            line = stream.readline()
            while line[3:4] == b"-":
                line = stream.readline()
            return line[:3]

        assert stream.readline().startswith(b"220 mail.once.invalid")
        assert answer(b"MAIL FROM:<a@example.org>") == b"503"
        assert answer(b"EHLO client") == b"250"
        assert answer(b"\x00\xff") == b"500"
        assert answer(b"MAIL FROM:<a@example.org> SIZE=99999999") == b"552"
        assert answer(b"RCPT TO:<b@example.org>") == b"503"
        assert answer(b"MAIL FROM:<a@example.org>") == b"250"
        assert answer(b"DATA") == b"503"
        assert answer(b"RCPT TO:<b@example.org>") == b"250"
        assert answer(b"DATA") == b"354"
        stream.write(b"half a ma")
    assert ledger.effects() == []


def test_a_ledger_that_is_gone_is_a_temporary_failure(server: MailServer, tmp_path: Path) -> None:
    """Nothing was accepted, and the reason is on the server's standard error."""
    with pytest.raises(smtplib.SMTPDataError, match="451"):
        send(server.address(tmp_path / "gone.db", "mail"), mail())
    assert "no ledger at" in server.errors()


def test_a_payload_is_what_the_mail_asks_for() -> None:
    """Whatever comes, the payload is the same for the same mail, and any header may be the key."""

    def payload(content: bytes, key_field: str | None = None) -> dict[str, Any]:
        return mail_payload("a", ["b"], content, key_field)

    assert payload(bytes(mail("ä\nb"))) == payload(bytes(mail("ä\nb")))
    assert payload(bytes(mail(attachment=b"1"))) == payload(bytes(mail(attachment=b"1")))
    assert payload(bytes(mail(attachment=b"1"))) != payload(bytes(mail(attachment=b"2")))
    assert payload(b"Message-id: <1>\r\nDate: now\r\n\r\nx", "Message-ID")["Message-ID"] == "<1>"
    assert payload(b"X: 1\r\nX: 2\r\n 3\r\n\r\nx")["headers"] == {"x": ["1", "2 3"]}
    assert payload(b"Content-Type: text/plain; charset=nonsense\r\n\r\n\xff")["content"] == b"\xff"
    for wrong in (b"", b"\xff\xfe", b"Content-Type: multipart/mixed\r\n\r\nx", b"Subject: =?x?q?=FF?=\r\n\r\n"):
        assert payload(wrong)["envelope"] == {"from": "a", "to": ["b"]}


def test_smtp_is_for_contracts_without_deduplication_and_needs_aiosmtpd(
    server: MailServer, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fake that recognised mails would promise what no server does; and the error says what to install."""
    with pytest.raises(ValueError, match='contract="smtp"'):
        _ = Provider("keyed", CLIENT_KEY, ledger, str).smtp
    with pytest.raises(ValueError, match=r"once\.provider"):
        _ = Provider("post", SMTP, ledger, str).smtp
    monkeypatch.setattr(mail_server_module, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install aiosmtpd"):
        _ = provider(server, ledger).smtp


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_the_server_ends_with_its_parent() -> None:
    """A parent that is killed leaves nothing behind."""
    program = (
        "from once_fakes.mail_server import MailServer\n"
        "server = MailServer(); server.start(); server.address('x.db', 'mail')\n"
        "print(server.pid, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        watched = os.pidfd_open(pid)
        parent.send_signal(signal.SIGKILL)
    try:
        import select

        assert select.select([watched], [], [], 10)[0]
    finally:
        os.close(watched)


class SentOrNot(Exception):
    """A person has to look: nobody can say whether the mail went out."""


def tell_customer(once: Once, *, careful: bool) -> None:
    """Mail once that the order was shipped, and not again after a crash; careful: nor after an answer that is lost."""
    where = once.provider("mail", contract="smtp", key_field="X-Order").smtp
    with tasks(once) as db:
        if state(db) == "sent":
            return
        if state(db) == "sending":
            raise SentOrNot
        put(db, "sending")
        try:
            send(where, mail())
        except smtplib.SMTPServerDisconnected:
            if careful:
                raise SentOrNot from None
            send(where, mail())
        put(db, "sent")


def explored(body: Callable[[Once], None]) -> Any:
    return explore(body, faults=["lost-response"], blocked=(SentOrNot,))


@pytest.mark.slow
def test_a_mailer_that_sends_again_after_a_lost_answer_is_convicted() -> None:
    """No process dies, and the customer has two mails (RFC 1047); the twin leaves it to a person (S3.4)."""
    report = explored(lambda once: tell_customer(once, careful=False))
    assert report.verdict is Verdict.DUPLICATE, told(report)
    assert (report.violations[0].expected, report.violations[0].actual) == (1, 2)
    assert report.violations[0].confirmed
    assert "lr@" in str(report.violations[0].schedule)
    careful = explored(lambda once: tell_customer(once, careful=True))
    assert (careful.verdict, careful.coverage, careful.passed) == (Verdict.ESCALATED, "exhausted", True), told(careful)
