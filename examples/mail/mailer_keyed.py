"""A mailer whose idempotency key is the mail's identity, and which knows how long the provider remembers it.

The key is made of what the mail is for, so every attempt and every restart sends the same one. When it was first sent
is committed before it is; once the provider may have forgotten the key, another attempt could send the mail twice, and
the mailer asks a person instead.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import httpx

from examples.mail.errors import MailDelayed, MailRejected, MailUnconfirmed

TLS = httpx.create_ssl_context()  # reading the certificates takes longer than all the rest
BACKOFF_S = (1.0, 5.0)
KEY_IS_KEPT_S = 24 * 3600.0
SAFELY_S = KEY_IS_KEPT_S - 3600.0  # an attempt takes its time, and clocks differ
IN_PROGRESS = "concurrent_idempotent_requests"


class Mailer:
    def __init__(self, db: Path, base_url: str, api_key: str) -> None:
        self._db = db
        self._base_url = base_url
        self._headers = {"Authorization": f"Bearer {api_key}"}
        with closing(sqlite3.connect(db)) as conn:
            conn.execute(
                "CREATE TABLE IF NOT EXISTS mails"
                " (order_id TEXT PRIMARY KEY, status TEXT NOT NULL, first_attempt_s REAL NOT NULL)"
            )

    def send_receipt(self, order: str, to: str) -> None:
        """Send the order's receipt, once."""
        with closing(sqlite3.connect(self._db)) as conn:
            with conn:
                conn.execute("INSERT OR IGNORE INTO mails VALUES (?, 'sending', ?)", (order, time.time()))
            status, first_s = conn.execute(
                "SELECT status, first_attempt_s FROM mails WHERE order_id = ?", (order,)
            ).fetchone()
            if status == "sent":
                return
            if time.time() - first_s > SAFELY_S:
                raise MailUnconfirmed(f"{order}: first sent a day ago, and the provider may have forgotten its key")
            self._send(order, to)
            with conn:
                conn.execute("UPDATE mails SET status = 'sent' WHERE order_id = ?", (order,))

    def _send(self, order: str, to: str) -> None:
        mail = {"from": "billing@acme.test", "to": [to], "subject": f"Receipt for {order}", "text": "Thank you."}
        key = {"Idempotency-Key": f"receipt/{order}"}
        with httpx.Client(base_url=self._base_url, headers=self._headers, timeout=10.0, verify=TLS) as client:
            for pause_s in (*BACKOFF_S, None):
                try:
                    response = client.post("/emails", json=mail, headers=key)
                    if response.is_success:
                        return
                    if response.is_client_error and not _try_again(response):
                        raise MailRejected(f"{order}: {response.status_code} {response.text}")
                except httpx.TransportError:
                    pass  # the key makes another attempt safe
                if pause_s is not None:
                    time.sleep(pause_s)
        raise MailDelayed(order)


def _try_again(response: httpx.Response) -> bool:
    return response.status_code == 429 or (response.status_code == 409 and response.json()["name"] == IN_PROGRESS)
