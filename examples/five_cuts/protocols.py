"""Three ways to ask a warehouse for a part when the process may die at any moment, and two ways to spoil one.

mark-first loses the reservation when the process dies between mark and call. outbox-no-dedup repeats it when
the process dies between effect and mark. outbox-dedup does neither, because the warehouse keeps a receipt in
the transaction of the effect. The last two keep it in another transaction, which moves the hole to the
warehouse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, Protocol

from examples.five_cuts.intent import Intent
from examples.five_cuts.orchestrator import Orchestrator
from examples.five_cuts.warehouse import (
    ReceiptAfterEffect,
    ReceiptBeforeEffect,
    Warehouse,
    WarehouseWithReceipts,
)

ProtocolName = Literal[
    "mark-first",
    "outbox-no-dedup",
    "outbox-dedup",
    "receipt-after-effect",
    "receipt-before-effect",
]

WAREHOUSES: Mapping[ProtocolName, type[Warehouse]] = {
    "mark-first": Warehouse,
    "outbox-no-dedup": Warehouse,
    "outbox-dedup": WarehouseWithReceipts,
    "receipt-after-effect": ReceiptAfterEffect,
    "receipt-before-effect": ReceiptBeforeEffect,
}


class Reserve(Protocol):
    """One call to the warehouse."""

    def __call__(self, intent: Intent, /) -> str: ...


def run(
    protocol: ProtocolName,
    directory: Path,
    intent: Intent,
    *,
    through: Callable[[Reserve], Reserve] | None = None,
) -> None:
    """What the process does at every start: submit the intent unless recorded, then resume what is pending.

    through: wraps the call to the warehouse, as a client library or a proxy would.
    """
    with Orchestrator(directory) as orchestrator, WAREHOUSES[protocol](directory) as warehouse:
        reserve: Reserve = warehouse.reserve if through is None else through(warehouse.reserve)
        if protocol == "mark-first":
            mark_first(orchestrator, reserve, intent)
        else:
            orchestrator.record(intent, "pending")
            relay(orchestrator, reserve)


def mark_first(orchestrator: Orchestrator, reserve: Reserve, intent: Intent) -> None:
    if orchestrator.record(intent, "done"):
        reserve(intent)


def relay(orchestrator: Orchestrator, reserve: Reserve) -> None:
    for intent in orchestrator.pending():
        result = reserve(intent)
        orchestrator.mark_done(intent.key, result)
