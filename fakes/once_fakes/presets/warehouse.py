"""The warehouse of `examples/five_cuts`, over HTTP: an agent reserves a spare part.

With receipts (`warehouse_dedup`) the key names the intent, "tenant:action" (such as "tenantA:reserve42"), and the
receipt commits in the transaction of the reservation; other arguments under the key are refused. Without
(`warehouse_no_dedup`) every arrival reserves anew, and nobody can ask what has been reserved.

Not modelled: stock, cancelling, shipping.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, unquote

from once_fakes.contract import Contract
from once_fakes.dialect import Act, Ask, Dialect, Request, Shown, method_refused
from once_fakes.presets.documents import json_object, json_request
from once_fakes.reply import Refusal

PLACE = "POST /reservations"


class Warehouse(Dialect):
    """POST /reservations with the part and the quantity; GET /reservations/<key or id>, GET /reservations."""

    source = "examples/five_cuts"
    not_modelled = "stock, cancelling, shipping"

    def understand(self, contract: Contract, request: Request) -> Act | Ask | Refusal:
        collection, _, member = request.path.removeprefix("/").partition("/")
        if collection != "reservations":
            return Refusal("unknown_path", 404, f"there is nothing at {request.path}")
        if request.method in ("GET", "HEAD") and contract.lookup != "none":
            return Ask(PLACE, unquote(member) or None)
        if request.method != "POST" or member:
            return method_refused(contract, request)
        payload = json_object(request)
        if isinstance(payload, Refusal):
            return payload
        key = request.headers.get(contract.key_header.lower())
        return Act("POST /reservations", payload, key, invalid=_invalid(contract, payload, key))

    def document(self, contract: Contract, shown: Shown) -> dict[str, Any]:
        asked = shown.payload if isinstance(shown.payload, dict) else {}
        named = {} if shown.reference is None else {"key": shown.reference}
        return {
            **named,
            "reservation": f"reservation-{shown.number}",
            "part": asked.get("part"),
            "quantity": asked.get("quantity"),
            "state": "reserved",
        }

    def identifier(self, contract: Contract, shown: Shown) -> str:
        return f"reservation-{shown.number}"

    def status(self, contract: Contract, shown: Shown) -> int:
        return 201

    def listing(self, contract: Contract, documents: list[dict[str, Any]], ask: Ask) -> dict[str, Any]:
        return {"reservations": documents}

    def example(self, contract: Contract, key: str | None, variant: int = 0) -> Request:
        headers = {} if key is None else {"idempotency-key": key if ":" in key else f"tenantA:{key}"}
        return json_request("POST", "/reservations", {"part": "bearing", "quantity": 2 + variant}, headers)

    def example_lookup(self, contract: Contract, reference: str | None) -> Request:
        path = "/reservations"
        if reference is not None:
            known = ":" in reference or reference.startswith("reservation-")
            path += "/" + quote(reference if known else f"tenantA:{reference}", safe="")
        return Request("GET", path, "", {}, b"")


WAREHOUSE = Warehouse()

WAREHOUSE_DEDUP = Contract(
    name="warehouse_dedup",
    dialect="once_fakes.presets.warehouse:WAREHOUSE",
    on_missing_key="error",
    lookup="by_key",
)
"""The receipt is in the transaction of the reservation, and kept for ever."""

WAREHOUSE_NO_DEDUP = Contract(name="warehouse_no_dedup", dialect="once_fakes.presets.warehouse:WAREHOUSE", dedup="none")
"""Every arrival reserves."""


def _invalid(contract: Contract, payload: dict[str, Any], key: str | None) -> Refusal | None:
    if contract.dedup == "client_key" and key is not None and not all(key.partition(":")):
        return Refusal("key_unusable", 400, "the key must be tenant:action", contract.key_header)
    if not isinstance(payload.get("part"), str) or not payload["part"]:
        return Refusal("invalid", 422, "part must be a text that is not empty", "part")
    if type(payload.get("quantity")) is not int or payload["quantity"] < 1:
        return Refusal("invalid", 422, "quantity must be a whole number from 1", "quantity")
    return None
