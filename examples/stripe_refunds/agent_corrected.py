"""A refund agent whose idempotency key comes from the order, and which looks before it sends an old key again.

The key is stored with the time of its planning before anything is sent. As long as Stripe promises to know it, a retry
and a restart just send it again. After that the answer to "was it paid?" is no longer in the key: the agent asks Stripe
for the refunds of the charge, takes the one with its order in the metadata if there is one, and plans anew if not.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx

from examples.stripe_refunds.errors import RefundRejected, RefundUnconfirmed

TLS = httpx.create_ssl_context()  # reading the certificates takes longer than all the rest
BACKOFF_S = (0.5, 1.0)
TRY_AGAIN = frozenset({409, 429})  # an earlier attempt is still being handled; too many requests
KEY_KNOWN_S = 23 * 3600.0  # Stripe promises 24 hours


class RefundAgent:
    def __init__(self, db: Path, base_url: str, api_key: str) -> None:
        self._db = db
        self._base_url = base_url
        self._auth = {"Authorization": f"Bearer {api_key}"}
        with closing(sqlite3.connect(db)) as conn:
            conn.execute(
                "CREATE TABLE IF NOT EXISTS refunds (order_id TEXT PRIMARY KEY, key TEXT NOT NULL,"
                " planned_at REAL NOT NULL, refund_id TEXT)"
            )

    def refund(self, order: str, charge: str, amount: int) -> str:
        """Refund part of the order's charge and return Stripe's refund id."""
        with closing(sqlite3.connect(self._db)) as conn:
            sql = "SELECT key, planned_at, refund_id FROM refunds WHERE order_id = ?"
            key, planned_at, refund_id = conn.execute(sql, (order,)).fetchone() or (f"refund-{order}", None, None)
            if refund_id is not None:
                return str(refund_id)
            with httpx.Client(base_url=self._base_url, headers=self._auth, timeout=10.0, verify=TLS) as client:
                if planned_at is not None and time.time() - planned_at > KEY_KNOWN_S:
                    refund_id, planned_at = self._paid(client, order, charge), None
                if refund_id is None and planned_at is None:
                    with conn:
                        row = (order, key, time.time())
                        conn.execute("INSERT OR REPLACE INTO refunds VALUES (?, ?, ?, NULL)", row)
                if refund_id is None:
                    form = {"charge": charge, "amount": str(amount), "metadata[order]": order}
                    refund_id = self._answer(client, "POST", "/v1/refunds", {"Idempotency-Key": key}, data=form)["id"]
            with conn:
                conn.execute("UPDATE refunds SET refund_id = ? WHERE order_id = ?", (refund_id, order))
            return str(refund_id)

    def _paid(self, client: httpx.Client, order: str, charge: str) -> str | None:
        """The refund that was made for the order; lists show it at once."""
        refunds = self._answer(client, "GET", "/v1/refunds", {}, params={"charge": charge, "limit": "100"})
        return next((one["id"] for one in refunds["data"] if one["metadata"].get("order") == order), None)

    def _answer(self, client: httpx.Client, method: str, path: str, headers: dict[str, str], **more: Any) -> Any:
        for pause_s in (*BACKOFF_S, None):
            try:
                response = client.request(method, path, headers=headers, **more)
                if response.is_success:
                    return response.json()
                if response.is_client_error and response.status_code not in TRY_AGAIN:
                    raise RefundRejected(response.json()["error"]["message"])
            except httpx.TransportError:
                pass  # whether it was paid is unknown, and the same key may be sent again
            if pause_s is not None:
                time.sleep(pause_s)
        raise RefundUnconfirmed(f"no answer to {method} {path} after {len(BACKOFF_S) + 1} attempts")
