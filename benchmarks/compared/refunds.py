"""One refund, written in five ways. Only the last is right.

Each is a process: it is called again when it died. The provider knows a repetition by its Idempotency-Key.
"""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

import httpx

TLS = httpx.create_ssl_context()  # reading the certificates takes longer than all the rest
CALLS = "REFUND_CALLS"


def pay(base_url: str, key: str | None) -> None:
    headers = {} if key is None else {"Idempotency-Key": key}
    payload = {"order": "order_123", "amount": 500}
    httpx.post(f"{base_url}/refunds", json=payload, headers=headers, verify=TLS).raise_for_status()


def opened(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE IF NOT EXISTS refunds (order_id TEXT PRIMARY KEY, key TEXT)")
    return db


def recorded(db: sqlite3.Connection) -> bool:
    return db.execute("SELECT 1 FROM refunds WHERE key IS NOT 'none yet'").fetchone() is not None


def no_key(path: Path, base_url: str) -> None:
    """Acts, then records, and sends nothing that the provider could recognise."""
    with closing(opened(path)) as db:
        if recorded(db):
            return
        pay(base_url, None)
        db.execute("INSERT INTO refunds VALUES ('order_123', '')")
        db.commit()


def marked_first(path: Path, base_url: str) -> None:
    """Records, then acts."""
    with closing(opened(path)) as db:
        if recorded(db):
            return
        db.execute("INSERT INTO refunds VALUES ('order_123', '')")
        db.commit()
        pay(base_url, "refund:order_123")


def key_made_in_recovery(path: Path, base_url: str) -> None:
    """Stores its key before it acts; its recovery, if there is no key yet, makes one and stores it afterwards."""
    with closing(opened(path)) as db:
        if recorded(db):
            (key,) = db.execute("SELECT key FROM refunds").fetchone()
        elif db.execute("SELECT 1 FROM refunds").fetchone():
            key = uuid.uuid4().hex
        else:
            db.execute("INSERT INTO refunds VALUES ('order_123', 'none yet')")
            db.commit()
            key = uuid.uuid4().hex
            db.execute("UPDATE refunds SET key = ?", (key,))
            db.commit()
        pay(base_url, key)
        db.execute("UPDATE refunds SET key = ?", (key,))
        db.commit()


def flag_in_finally(path: Path, base_url: str) -> None:
    """Says that it is at work and takes that back in the end, unless there is no end."""
    with closing(opened(path)) as db:
        db.execute("CREATE TABLE IF NOT EXISTS working (order_id TEXT PRIMARY KEY)")
        if recorded(db):
            return
        ours = False
        try:
            db.execute("INSERT INTO working VALUES ('order_123')")
            ours = True
            db.commit()
            pay(base_url, "refund:order_123")
            db.execute("INSERT INTO refunds VALUES ('order_123', '')")
            db.commit()
        finally:
            if ours:
                db.rollback()
                db.execute("DELETE FROM working")
                db.commit()


def right(path: Path, base_url: str) -> None:
    """A key made of the intent; acts, then records."""
    with closing(opened(path)) as db:
        if recorded(db):
            return
        pay(base_url, "refund:order_123")
        db.execute("INSERT INTO refunds VALUES ('order_123', '')")
        db.commit()


Way: TypeAlias = Callable[[Path, str], None]
WAYS: tuple[Way, ...] = (no_key, marked_first, key_made_in_recovery, flag_in_finally, right)


def live(way: Way, path: Path, base_url: str) -> None:
    """One life of the process, counted in the file that CALLS names."""
    if counted := os.environ.get(CALLS):
        with open(counted, "a") as calls:
            calls.write(f"{way.__name__}\n")
    way(path, base_url)
