"""A refund agent that lets each call have its own idempotency key, as an SDK does when it is given none.

It must fail: the key is gone with the process. After a crash the refund is sent under another one, and the customer is
refunded twice. The agent's own retries, which repeat the key, hide that from every test without a crash.
"""

from __future__ import annotations

import sqlite3
import time
import uuid
from contextlib import closing
from pathlib import Path

import httpx

from examples.stripe_refunds.errors import RefundRejected, RefundUnconfirmed

TLS = httpx.create_ssl_context()  # reading the certificates takes longer than all the rest
BACKOFF_S = (0.5, 1.0)
TRY_AGAIN = frozenset({409, 429})  # an earlier attempt is still being handled; too many requests


class RefundAgent:
    def __init__(self, db: Path, base_url: str, api_key: str) -> None:
        self._db = db
        self._base_url = base_url
        self._auth = {"Authorization": f"Bearer {api_key}"}
        with closing(sqlite3.connect(db)) as conn:
            conn.execute("CREATE TABLE IF NOT EXISTS refunds (order_id TEXT PRIMARY KEY, refund_id TEXT NOT NULL)")

    def refund(self, order: str, charge: str, amount: int) -> str:
        """Refund part of the order's charge and return Stripe's refund id."""
        with closing(sqlite3.connect(self._db)) as conn:
            row = conn.execute("SELECT refund_id FROM refunds WHERE order_id = ?", (order,)).fetchone()
            if row is not None:
                return str(row[0])
            refund_id = self._send(order, {"charge": charge, "amount": str(amount), "metadata[order]": order})
            with conn:
                conn.execute("INSERT INTO refunds VALUES (?, ?)", (order, refund_id))
            return refund_id

    def _send(self, order: str, form: dict[str, str]) -> str:
        headers = {**self._auth, "Idempotency-Key": str(uuid.uuid4())}
        with httpx.Client(base_url=self._base_url, headers=headers, timeout=10.0, verify=TLS) as client:
            for pause_s in (*BACKOFF_S, None):
                try:
                    response = client.post("/v1/refunds", data=form)
                    if response.is_success:
                        return str(response.json()["id"])
                    if response.is_client_error and response.status_code not in TRY_AGAIN:
                        raise RefundRejected(f"{order}: {response.json()['error']['message']}")
                except httpx.TransportError:
                    pass  # whether it was paid is unknown
                if pause_s is not None:
                    time.sleep(pause_s)
        raise RefundUnconfirmed(f"{order}: no answer after {len(BACKOFF_S) + 1} attempts")
