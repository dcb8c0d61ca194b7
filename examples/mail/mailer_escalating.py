"""A mailer for a provider without keys: it sends once, and where it cannot know the outcome it asks a person.

That it is about to send is committed before it sends. A restart that finds such a mail does not send it again: it may
be on its way. No code can be both sure and complete here, since the provider can neither recognise a repetition nor be
asked; so this one is sure, and says so.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import httpx

from examples.mail.errors import MailRejected, MailUnconfirmed

TLS = httpx.create_ssl_context()  # reading the certificates takes longer than all the rest


class Mailer:
    def __init__(self, db: Path, base_url: str, api_key: str) -> None:
        self._db = db
        self._base_url = base_url
        self._headers = {"Authorization": f"Bearer {api_key}"}
        with closing(sqlite3.connect(db)) as conn:
            conn.execute("CREATE TABLE IF NOT EXISTS mails (order_id TEXT PRIMARY KEY, status TEXT NOT NULL)")

    def send_receipt(self, order: str, to: str) -> None:
        """Send the order's receipt, once; raise MailUnconfirmed where only a person can find out."""
        with closing(sqlite3.connect(self._db)) as conn:
            known = conn.execute("SELECT status FROM mails WHERE order_id = ?", (order,)).fetchone()
            if known == ("sent",):
                return
            if known is not None:
                raise MailUnconfirmed(f"{order}: an earlier attempt did not hear what became of it")
            with conn:
                conn.execute("INSERT INTO mails VALUES (?, 'sending')", (order,))
            self._send(order, to)
            with conn:
                conn.execute("UPDATE mails SET status = 'sent' WHERE order_id = ?", (order,))

    def _send(self, order: str, to: str) -> None:
        mail = {
            "personalizations": [{"to": [{"email": to}]}],
            "from": {"email": "billing@acme.test"},
            "subject": f"Receipt for {order}",
            "content": [{"type": "text/plain", "value": "Thank you."}],
        }
        with httpx.Client(base_url=self._base_url, headers=self._headers, timeout=10.0, verify=TLS) as client:
            try:
                response = client.post("/v3/mail/send", json=mail)
            except httpx.TransportError as error:
                raise MailUnconfirmed(f"{order}: no answer ({type(error).__name__})") from error
        if response.is_server_error:
            raise MailUnconfirmed(f"{order}: {response.status_code}, which says nothing about the mail")
        if response.is_error:
            raise MailRejected(f"{order}: {response.status_code} {response.text}")
