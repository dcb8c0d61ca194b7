"""A refund agent that is right after any one crash and wrong when its recovery crashes too.

The first life commits the key before it sends, and a restart sends a stored key again. But a task found
'planned' has no key yet, and its recovery reasons "nothing was sent, so a new key is safe" and stores that
key only together with the result. One crash before the key was stored, a second after the recovery sent: the
task is 'planned' still, although something was sent, and the next recovery makes another key. The customer is
refunded twice.
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
            task = conn.execute(
                "SELECT amount, status, idempotency_key, refund_id FROM tasks WHERE order_id = ?", (order,)
            ).fetchone()
            if task is None:
                return self._start(conn, order, amount)
            planned_amount, status, key, refund_id = task
            if planned_amount != amount:
                raise RefundConflict(f"{order} has a refund of {planned_amount}, not {amount}")
            if status == "done":
                return str(refund_id)
            if status == "sending":
                return self._send_and_store(conn, order, amount, key)
            # Still 'planned': nothing was sent, so a new key is safe, and it is stored with the result.
            return self._send_and_store(conn, order, amount, uuid.uuid4().hex)

    def _start(self, conn: sqlite3.Connection, order: str, amount: int) -> str:
        with conn:
            conn.execute("INSERT INTO tasks VALUES (?, ?, 'planned', NULL, NULL)", (order, amount))
        key = uuid.uuid4().hex
        with conn:
            conn.execute("UPDATE tasks SET status = 'sending', idempotency_key = ? WHERE order_id = ?", (key, order))
        return self._send_and_store(conn, order, amount, key)

    def _send_and_store(self, conn: sqlite3.Connection, order: str, amount: int, key: str) -> str:
        refund_id = self._send(order, amount, key)
        with conn:
            conn.execute(
                "UPDATE tasks SET status = 'done', idempotency_key = ?, refund_id = ? WHERE order_id = ?",
                (key, refund_id, order),
            )
        return refund_id

    def _send(self, order: str, amount: int, key: str) -> str:
        with httpx.Client(base_url=self._base_url, timeout=10.0, verify=TLS) as client:
            for pause_s in (*BACKOFF_S, None):
                try:
                    response = client.post(
                        "/refunds", json={"order": order, "amount": amount}, headers={"Idempotency-Key": key}
                    )
                    if response.is_success:
                        return str(response.json()["id"])
                    if response.is_client_error and response.status_code not in TRY_AGAIN:
                        raise RefundRejected(f"{order}: {response.status_code} {response.text}")
                except httpx.TransportError:
                    pass  # whether it was paid is unknown
                if pause_s is not None:
                    time.sleep(pause_s)
        raise RefundUnconfirmed(f"{order}: no answer after {len(BACKOFF_S) + 1} attempts")
