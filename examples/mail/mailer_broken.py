"""A mailer that tries again when there is no answer, at a provider that cannot tell.

It must fail: after a lost response the first mail is on its way, and the second attempt sends another. Nothing
identifies the mail to the provider, so the customer gets it twice. A crash before the row is marked does the same.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import httpx

from examples.mail.errors import MailDelayed, MailRejected

TLS = httpx.create_ssl_context()  # reading the certificates takes longer than all the rest
BACKOFF_S = (1.0, 5.0)


class Mailer:
    def __init__(self, db: Path, base_url: str, api_key: str) -> None:
        self._db = db
        self._base_url = base_url
        self._headers = {"Authorization": f"Bearer {api_key}"}
        with closing(sqlite3.connect(db)) as conn:
            conn.execute("CREATE TABLE IF NOT EXISTS mails (order_id TEXT PRIMARY KEY, status TEXT NOT NULL)")

    def send_receipt(self, order: str, to: str) -> None:
        """Send the order's receipt, once."""
        with closing(sqlite3.connect(self._db)) as conn:
            if conn.execute("SELECT 1 FROM mails WHERE order_id = ?", (order,)).fetchone():
                return
            self._send(order, to)
            with conn:
                conn.execute("INSERT INTO mails VALUES (?, 'sent')", (order,))

    def _send(self, order: str, to: str) -> None:
        mail = {"from": "billing@acme.test", "to": [to], "subject": f"Receipt for {order}", "text": "Thank you."}
        with httpx.Client(base_url=self._base_url, headers=self._headers, timeout=10.0, verify=TLS) as client:
            for pause_s in (*BACKOFF_S, None):
                try:
                    response = client.post("/emails", json=mail)
                    if response.is_success:
                        return
                    if response.is_client_error and response.status_code != 429:
                        raise MailRejected(f"{order}: {response.status_code} {response.text}")
                except httpx.TransportError:
                    pass  # whether it was sent is unknown
                if pause_s is not None:
                    time.sleep(pause_s)
        raise MailDelayed(order)
