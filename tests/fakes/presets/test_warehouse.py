"""The warehouse of the five cuts over HTTP, with receipts and without."""

from __future__ import annotations

import httpx
import pytest

from examples.five_cuts.intent import Intent
from examples.five_cuts.orchestrator import Orchestrator
from examples.five_cuts.protocols import Reserve, mark_first, relay
from once_fakes import Contract
from once_fakes.presets.warehouse import WAREHOUSE_DEDUP, WAREHOUSE_NO_DEDUP
from pytest_once import Once, Verdict, explore
from pytest_once.ledger import Ledger
from tests.fakes.presets.wire import Wire, shown

KEY = {"Idempotency-Key": "tenantA:reserve42"}
PART = {"part": "bearing", "quantity": 2}


def test_a_receipt_belongs_to_the_intent(ledger: Ledger) -> None:
    """The tenant is part of the key, other arguments under it are refused, and it can be asked for (S1.1, S1.4)."""
    warehouse = Wire(ledger, WAREHOUSE_DEDUP)
    first = warehouse.send("POST", "/reservations", PART, KEY)
    again = warehouse.send("POST", "/reservations", PART, KEY)
    assert (first.status, again.status, again.content) == (201, 201, first.content)
    assert shown(first) == {
        "key": "tenantA:reserve42",
        "reservation": "reservation-1",
        "state": "reserved",
        **PART,
    }
    assert warehouse.send("POST", "/reservations", {**PART, "quantity": 3}, KEY).status == 422
    assert warehouse.send("POST", "/reservations", PART, {"Idempotency-Key": "tenantB:reserve42"}).status == 201
    for reference in ("tenantA:reserve42", "tenantA%3Areserve42", "reservation-1"):
        assert shown(warehouse.send("GET", f"/reservations/{reference}")) == shown(first)
    assert len(shown(warehouse.send("GET", "/reservations"))["reservations"]) == 2
    assert len(ledger.effects()) == 2


@pytest.mark.parametrize(
    ("method", "path", "body", "key", "status"),
    [
        ("POST", "/reservations", PART, None, 400),
        ("POST", "/reservations", PART, "reserve42", 400),
        ("POST", "/reservations", PART, ":reserve42", 400),
        ("POST", "/reservations", {"part": "bearing"}, "a:b", 422),
        ("POST", "/reservations", {"part": 7, "quantity": 1}, "a:b", 422),
        ("POST", "/reservations", {"part": "bearing", "quantity": True}, "a:b", 422),
        ("POST", "/reservations", b"{", "a:b", 400),
        ("POST", "/reservations/1", PART, "a:b", 405),
        ("PUT", "/reservations", PART, "a:b", 405),
        ("POST", "/stock", PART, "a:b", 404),
        ("GET", "/reservations/none", None, None, 404),
    ],
)
def test_what_the_warehouse_refuses(
    ledger: Ledger, method: str, path: str, body: object, key: str | None, status: int
) -> None:
    """Refusals are documents, and nothing is reserved."""
    warehouse = Wire(ledger, WAREHOUSE_DEDUP)
    reply = warehouse.send(method, path, body, {} if key is None else {"idempotency-key": key})
    assert reply.status == status, shown(reply)
    assert shown(reply)["error"]["message"]
    assert ledger.effects() == []


@pytest.mark.parametrize(
    ("contract", "marks_first", "verdict"),
    [
        (WAREHOUSE_DEDUP, True, Verdict.OMISSION),
        (WAREHOUSE_NO_DEDUP, False, Verdict.DUPLICATE),
        (WAREHOUSE_DEDUP, False, Verdict.EXACTLY_ONCE),
    ],
    ids=("mark-first", "outbox-no-dedup", "outbox-dedup"),
)
def test_the_three_protocols(contract: Contract, marks_first: bool, verdict: Verdict) -> None:
    """The orchestrator of the example against the warehouse as a service (S1.1 to S1.3)."""

    def body(once: Once) -> None:
        warehouse = once.provider("warehouse", contract=contract)

        def reserve(intent: Intent, /) -> str:
            with httpx.Client(base_url=warehouse.base_url, verify=False) as client:
                asked = {"part": intent.part, "quantity": intent.quantity}
                answer = client.post("/reservations", json=asked, headers={"Idempotency-Key": intent.key})
            return str(answer.raise_for_status().json()["reservation"])

        intent = Intent("tenantA", "reserve42", "bearing", 2)
        with warehouse.router, Orchestrator(once.path) as orchestrator:
            through: Reserve = reserve
            if marks_first:
                mark_first(orchestrator, through, intent)
            else:
                orchestrator.record(intent, "pending")
                relay(orchestrator, through)

    report = explore(body, soft_faults=0)
    assert report.verdict is verdict, (report.verdict, report.problem)
    assert verdict is not Verdict.EXACTLY_ONCE or report.coverage == "exhausted"
