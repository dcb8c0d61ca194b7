"""The ledger as a part of the world: its rows carry the names by which reports and `ignore=` speak of them."""

from __future__ import annotations

from pathlib import Path

from pytest_once.ledger import Ledger, Receipt
from pytest_once.ledger.within import decide, emit_event, insert_effect, move_position, store_receipt
from pytest_once.stores.ledger import LedgerStore


def test_every_cell_of_the_state_has_the_name_of_its_column(tmp_path: Path) -> None:
    """A cell under another's name would be ignored, or shown, in its place."""
    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.record_provider("pay", "{}", None, None)
    with ledger.transaction() as connection:
        insert_effect(connection, "pay", "refund", "order_1", "1", 1, "ref", 1930367227.0, "pending", 1930367228.0)
        store_receipt(connection, Receipt("pay", "k", "f", 200, "{}", 1, 1930453567.0, 1930453566.0))
        emit_event(connection, "pay", "refund.done", "{}", 1)
        move_position(connection, "pay", "fence", 7)
        decide(connection, "pay", "on_mismatch", "replay")
    ledger.hold("pay", "refund", {"payload": "2", "key": "l"})
    ledger.remember("caller", True)

    store = LedgerStore(ledger.path)
    rows = {row.place: dict(zip(row.names, row.cells, strict=True)) for row in store.rows(store.snapshot())}
    assert rows == {
        "ledger/effects": {
            "provider": "pay",
            "operation": "refund",
            "logical_key": "order_1",
            "payload": "1",
            "reference": "ref",
            "visible_s": 1930367227.0,
            "state": "pending",
            "due_s": 1930367228.0,
        },
        "ledger/receipts": {
            "provider": "pay",
            "key": "k",
            "fingerprint": "f",
            "status": 200,
            "body": "{}",
            "expires_s": 1930453567.0,
            "promised_s": 1930453566.0,
        },
        "ledger/in_flight": {
            "provider": "pay",
            "operation": "refund",
            "key": "l",
            "payload": "2",
            "expires_s": None,
            "accepted": 0,
        },
        "ledger/events": {"provider": "pay", "kind": "refund.done", "body": "{}", "acknowledged": 0},
        "ledger/positions": {"provider": "pay", "name": "fence", "value": 7},
        "ledger/decisions": {"provider": "pay", "parameter": "on_mismatch", "value": "replay"},
        "ledger/memory": {"name": "caller", "value": "true"},
    }
