"""Braintree's GraphQL API with duplicate checking, its default: no key, but 30 seconds in which content counts.

A transaction of the same amount, order id and payment method as one that succeeded in the last 30 seconds is rejected
by the gateway: an answer with HTTP status 200 whose transaction has the status GATEWAY_REJECTED, the reason DUPLICATE.
After that, and with another order id, it is charged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from once_fakes.contract import Contract
from once_fakes.dialect import Act, Ask, Dialect, Request, Shown
from once_fakes.presets.fields import Field, at, decimal, flaw, read_object, text
from once_fakes.reply import Refusal

_CHARGE = "mutation chargePaymentMethod"
_FIELDS = (
    text("paymentMethodId"),
    decimal("transaction.amount"),
    text("transaction.orderId", needed=False, longest=255),
)
_VARIABLES = Field("variables", lambda value: isinstance(value, dict), "an object", needed=False)
_INPUT = Field("input", lambda value: isinstance(value, dict), "an object")
_CHARGING = re.compile(r"\bmutation\b.*\bchargePaymentMethod\b", re.DOTALL)
_SEARCHING = re.compile(r"\bsearch\b.*\btransactions\b", re.DOTALL)
_REJECTED = ("content_repeated", "declined")


class Braintree(Dialect):
    """Braintree's GraphQL API on the wire: POST /graphql, with the values in `variables.input`."""

    source = (
        "https://developer.paypal.com/braintree/articles/control-panel/transactions/duplicate-checking"
        " https://developer.paypal.com/braintree/graphql/reference"
    )
    not_modelled = (
        "Selections (every answer has the same fields), values within the query instead of in variables.input, other"
        " mutations than chargePaymentMethod, apiRequestKey, recurring billing, the REST API with XML, webhooks."
    )

    def understand(self, contract: Contract, request: Request) -> Act | Ask | Refusal:
        if not request.account:
            return Refusal("unauthorized", 401, "the header Authorization is missing")
        if request.path.rstrip("/") != "/graphql":
            return Refusal("unknown_path", 404, f"nothing answers {request.path}; GraphQL is at /graphql")
        if request.method != "POST":
            return Refusal(
                "method_not_allowed", 405, f"{request.method} is not answered here", headers=(("allow", "POST"),)
            )
        asked = read_object(request)
        if isinstance(asked, Refusal):
            return asked
        wrong = flaw(asked, (text("query"), _VARIABLES))
        if wrong is not None:
            return wrong
        variables = asked.get("variables") or {}
        if _SEARCHING.search(asked["query"]):
            order = at(variables, "input.orderId.is")
            return Ask(_CHARGE, where={} if order is None else {"orderId": str(order)})
        if not _CHARGING.search(asked["query"]):
            return Refusal("malformed", 400, "only the mutation chargePaymentMethod and searches are understood")
        wrong = flaw(variables, (_INPUT,), 200) or flaw(variables["input"], _FIELDS, 200)
        return Act(_CHARGE, _content(at(variables, "input")), invalid=wrong, account=request.account)

    def identifier(self, contract: Contract, shown: Shown) -> str:
        return f"once{shown.number:08d}"

    def document(self, contract: Contract, shown: Shown) -> dict[str, Any]:
        transaction = {
            "id": self.identifier(contract, shown),
            "status": "SUBMITTED_FOR_SETTLEMENT",
            "amount": {"value": at(shown.payload, "amount"), "currencyCode": "USD"},
            "orderId": at(shown.payload, "orderId"),
            "createdAt": "2024-01-01T00:00:00.000000Z",
        }
        return _answer({"chargePaymentMethod": {"transaction": transaction}})

    def listing(self, contract: Contract, documents: list[dict[str, Any]], ask: Ask) -> dict[str, Any]:
        found = [document["data"]["chargePaymentMethod"]["transaction"] for document in documents]
        page = {"hasNextPage": False, "endCursor": None}
        edges = [{"node": transaction} for transaction in found]
        return _answer({"search": {"transactions": {"edges": edges, "pageInfo": page}}})

    def refusal(self, contract: Contract, refusal: Refusal) -> tuple[int, dict[str, Any]]:
        if refusal.kind in _REJECTED:
            return 200, _answer({"chargePaymentMethod": {"transaction": _rejected(refusal)}})
        kind = _CLASSES.get(refusal.kind, "VALIDATION")
        extensions = {"errorClass": kind, "errorType": "developer_error" if kind == "INTERNAL" else "user_error"}
        if refusal.param is not None:
            extensions["inputPath"] = ["input", *refusal.param.split(".")]  # type: ignore[assignment]
        error = {"message": refusal.message, "path": ["chargePaymentMethod"], "extensions": extensions}
        return refusal.status, {"errors": [error], **_answer({"chargePaymentMethod": None})}

    def example(self, contract: Contract, key: str | None, variant: int = 0) -> Request:
        transaction = {"amount": f"{10 + variant}.00"} | ({} if key is None else {"orderId": key})
        query = "($input: ChargePaymentMethodInput!) { chargePaymentMethod(input: $input) { transaction { id } } }"
        return self._example(f"mutation Charge{query}", {"paymentMethodId": "token_once", "transaction": transaction})

    def example_lookup(self, contract: Contract, reference: str | None) -> Request:
        query = "($input: TransactionSearchInput!) { search { transactions(input: $input) { edges { node { id } } } } }"
        return self._example(f"query Search{query}", {} if reference is None else {"orderId": {"is": reference}})

    def _example(self, query: str, given: dict[str, Any]) -> Request:
        headers = {"authorization": "Basic b25jZTpvbmNl", "content-type": "application/json"}
        body = json.dumps({"query": query, "variables": {"input": given}})
        return Request("POST", "/graphql", "", headers, body.encode())


def _content(given: object) -> dict[str, Any]:
    """What is compared: by everything else two requests may differ and be one transaction."""
    return {
        "paymentMethodId": at(given, "paymentMethodId"),
        "amount": at(given, "transaction.amount"),
        "orderId": at(given, "transaction.orderId"),
    }


def _answer(data: dict[str, Any]) -> dict[str, Any]:
    return {"data": data, "extensions": {"requestId": "00000000-0000-4000-8000-000000000000"}}


def _rejected(refusal: Refusal) -> dict[str, Any]:
    duplicate = refusal.kind == "content_repeated"
    status = "GATEWAY_REJECTED" if duplicate else "PROCESSOR_DECLINED"
    event = {"status": status, "gatewayRejectionReason": "DUPLICATE" if duplicate else None}
    return {"id": None, "status": status, "statusHistory": [event]}


_CLASSES: Mapping[str, str] = {
    "unauthorized": "AUTHENTICATION",
    "unknown_path": "NOT_FOUND",
    "not_found": "NOT_FOUND",
    "failed": "INTERNAL",
    "unavailable": "SERVICE_AVAILABILITY",
}

BRAINTREE_GRAPHQL = Braintree()

BRAINTREE = Contract(
    name="braintree",
    dialect="once_fakes.presets.braintree:BRAINTREE_GRAPHQL",
    dedup="content_window",
    window_s=30.0,
    conflict_status=200,
    replay_header="",
    lookup="list_only",
)
"""Braintree's gateway with duplicate checking as it is set by default."""
