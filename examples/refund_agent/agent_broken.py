"""A refund agent with a new idempotency key for every attempt.

It must fail: the key identifies the attempt, so after a lost response the retry looks like another refund to
the provider and the customer is refunded twice. A crash after the provider acted does the same through the
restart.
"""

from __future__ import annotations

import sqlite3
import time
import uuid
from contextlib import closing
from pathlib import Path

import httpx

from examples.refund_agent.errors import RefundConflict, RefundRejected, RefundUnconfirmed

TLS = httpx.create_ssl_context()  # reading the certificates takes longer than all the rest
BACKOFF_S = (0.5, 1.0, 2.0)
TRY_AGAIN = frozenset({409, 429})  # an earlier attempt is still being handled; too many requests


class RefundAgent:
    def __init__(self, db: Path, base_url: str) -> None:
        self._db = db
        self._base_url = base_url
        with closing(sqlite3.connect(db)) as conn:
            conn.execute(
                "CREATE TABLE IF NOT EXISTS tasks (order_id TEXT PRIMARY KEY, amount INTEGER NOT NULL,"
                " status TEXT NOT NULL, idempotency_key TEXT, refund_id TEXT)"
            )

    def refund(self, order: str, amount: int) -> str:
        """Refund the order and return the provider's refund id."""
        with closing(sqlite3.connect(self._db)) as conn:
            task = conn.execute("SELECT amount, refund_id FROM tasks WHERE order_id = ?", (order,)).fetchone()
            if task is None:
                with conn:
                    conn.execute("INSERT INTO tasks VALUES (?, ?, 'planned', NULL, NULL)", (order, amount))
            else:
                planned_amount, refund_id = task
                if planned_amount != amount:
                    raise RefundConflict(f"{order} has a refund of {planned_amount}, not {amount}")
                if refund_id is not None:
                    return str(refund_id)

            refund_id, key = self._send(order, amount)
            with conn:
                conn.execute(
                    "UPDATE tasks SET status = 'done', idempotency_key = ?, refund_id = ? WHERE order_id = ?",
                    (key, refund_id, order),
                )
            return refund_id

    def _send(self, order: str, amount: int) -> tuple[str, str]:
        with httpx.Client(base_url=self._base_url, timeout=10.0, verify=TLS) as client:
            for pause_s in (*BACKOFF_S, None):
                key = uuid.uuid4().hex
                try:
                    response = client.post(
                        "/refunds", json={"order": order, "amount": amount}, headers={"Idempotency-Key": key}
                    )
                    if response.is_success:
                        return str(response.json()["id"]), key
                    if response.is_client_error and response.status_code not in TRY_AGAIN:
                        raise RefundRejected(f"{order}: {response.status_code} {response.text}")
                except httpx.TransportError:
                    pass  # whether it was paid is unknown
                if pause_s is not None:
                    time.sleep(pause_s)
        raise RefundUnconfirmed(f"{order}: no answer after {len(BACKOFF_S) + 1} attempts")
