"""Three mailers: without keys twice, with keys once, and where there are no keys at most once and never in silence.

Run with `pytest --once-chaos examples/mail`. A test marked `convicted` holds code that is broken on purpose.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.mail import mailer_broken, mailer_escalating, mailer_keyed
from examples.mail.errors import MailUnconfirmed
from pytest_once import Once


@pytest.mark.once_effect
@pytest.mark.convicted("DUPLICATE", because="nothing tells the provider that a second attempt is the same mail")
def test_a_mail_without_key_is_sent_twice(once: Once, tmp_path: Path) -> None:
    """S3.2: an accepted mail whose answer is lost is accepted again."""
    mail = once.provider("mail", contract="resend")
    mailer = mailer_broken.Mailer(tmp_path / "mails.db", mail.url, api_key="re_123")
    mailer.send_receipt("order_123", to="ada@example.test")


@pytest.mark.once_effect(restart_after=("0s", "25h"), faults=("lost-response",), blocked=(MailUnconfirmed,))
def test_a_mail_with_its_own_key_is_sent_once(once: Once, tmp_path: Path) -> None:
    """S4.1: the key is the mail's identity; when the provider may have forgotten it, a person is asked."""
    mail = once.provider("mail", contract="resend")
    mailer = mailer_keyed.Mailer(tmp_path / "mails.db", mail.url, api_key="re_123")
    mailer.send_receipt("order_123", to="ada@example.test")


# Not "duplicate": what the network doubles nobody can help, where the provider does not recognise it.
@pytest.mark.once_effect(
    blocked=(MailUnconfirmed,),
    faults=("refused", "lost-request", "lost-response", "reset-response", "error-before", "error-after"),
)
def test_where_there_are_no_keys_a_person_is_asked(once: Once, tmp_path: Path) -> None:
    """S4.1: at most one mail, and no outcome that nobody hears of."""
    mail = once.provider("mail", contract="sendgrid")
    mailer = mailer_escalating.Mailer(tmp_path / "mails.db", mail.url, api_key="SG.123")
    mailer.send_receipt("order_123", to="ada@example.test")
