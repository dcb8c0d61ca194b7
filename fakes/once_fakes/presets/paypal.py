"""PayPal's REST APIs: payments (captures and refunds), orders, and the vault.

A POST under a `PayPal-Request-Id` that was used before is answered with the latest status of that request, not with
its first answer; without the header it acts. The server keeps ids for a time that depends on the API: 45 days for
payments, 6 hours for orders (up to 72 on request), 3 hours for the vault. So each has a contract and a dialect of its
own. A second request at the same time may fail (409); what other content under a known id gets is not documented.

A resource can be asked for by its id alone, which comes with the answer that was lost: the contracts count that as no
look-up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from once_fakes.contract import Contract
from once_fakes.dialect import Act, Ask, Dialect, Request, Shown
from once_fakes.presets.fields import Field, at, decimal, flaw, read_object, text
from once_fakes.reply import Refusal

_TOKEN = "POST /v1/oauth2/token"
_HOST = "https://api-m.paypal.com"
_UNITS = Field("purchase_units", lambda value: isinstance(value, list) and 0 < len(value) <= 10, "a list of 1 to 10")
_SOURCE = Field("payment_source", lambda value: isinstance(value, dict) and bool(value), "an object")
_INTENT = Field("intent", lambda value: value in ("CAPTURE", "AUTHORIZE"), "CAPTURE or AUTHORIZE")
_AMOUNT = (decimal("amount.value", needed=False), text("amount.currency_code", needed=False, longest=3))
_INVOICE = text("invoice_id", needed=False, longest=127)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call: the template of its path ("{id}" is a part of the payload), its fields, and what its answer shows.

    shows: where what it makes can be asked for; prefix: how ids begin there, "" for a call that changes what its path
    names. done: the status of what is done.
    """

    path: str
    shows: str
    prefix: str
    done: str
    fields: tuple[Field, ...] = ()

    @property
    def operation(self) -> str:
        return f"POST {self.path}"

    def matched(self, path: str) -> dict[str, str] | None:
        """The parts of a path that the template leaves open; None if it is another path."""
        found = re.fullmatch(re.sub(r"{(\w+)}", r"(?P<\1>[A-Za-z0-9_-]{1,64})", self.path), path)
        return None if found is None else found.groupdict()


_REFUND = _Call(
    "/v2/payments/captures/{capture_id}/refund", "/v2/payments/refunds", "RE", "COMPLETED", (*_AMOUNT, _INVOICE)
)
_CAPTURE = _Call(
    "/v2/payments/authorizations/{authorization_id}/capture",
    "/v2/payments/captures",
    "CA",
    "COMPLETED",
    (*_AMOUNT, _INVOICE),
)
_ORDER = _Call("/v2/checkout/orders", "/v2/checkout/orders", "OR", "CREATED", (_INTENT, _UNITS))
_ORDER_CAPTURE = _Call("/v2/checkout/orders/{order_id}/capture", "/v2/checkout/orders", "", "COMPLETED")
_SETUP = _Call("/v3/vault/setup-tokens", "/v3/vault/setup-tokens", "ST", "APPROVED", (_SOURCE,))
_VAULT = _Call("/v3/vault/payment-tokens", "/v3/vault/payment-tokens", "PT", "CREATED", (_SOURCE,))


class PayPal(Dialect):
    """One of PayPal's REST APIs on the wire. calls: what it answers; the first is its example."""

    source = (
        "https://developer.paypal.com/api/rest/reference/idempotency https://developer.paypal.com/api/rest/responses"
        " https://developer.paypal.com/docs/api/payments/v2 https://developer.paypal.com/docs/api/orders/v2"
    )
    not_modelled = (
        "Amounts left to capture or refund (a full refund and a captured order are remembered), unique invoice ids,"
        " approval by the buyer, Prefer, transaction search, webhooks. Any access token is good."
    )

    def __init__(self, *calls: _Call) -> None:
        self._calls = calls
        self._by_operation = {call.operation: call for call in calls}

    def understand(self, contract: Contract, request: Request) -> Act | Ask | Refusal:
        path = request.path.rstrip("/")
        if (request.method, path) == ("POST", "/v1/oauth2/token"):
            return Ask(_TOKEN)
        if not request.account:
            return Refusal("unauthorized", 401, "the header Authorization with an access token is missing")
        if request.method in ("GET", "HEAD"):
            return self._asked(path)
        for call in self._calls:
            parts = call.matched(path)
            if parts is not None:
                return self._act(contract, call, parts, request)
        return Refusal("unknown_path", 404, f"{request.path} is no resource of this API ({contract.name})")

    def _act(self, contract: Contract, call: _Call, parts: dict[str, str], request: Request) -> Act | Refusal:
        if request.method != "POST":
            return Refusal("method_not_allowed", 405, f"{request.method} is not implemented here")
        payload = read_object(request)
        if isinstance(payload, Refusal):
            return payload
        key = request.headers.get(contract.key_header.lower())
        invalid = flaw(payload, call.fields)
        if call is _ORDER and invalid is None and "payment_source" in payload and not key:
            message = "an order with a payment_source needs a PayPal-Request-Id"
            invalid = Refusal("PAYPAL_REQUEST_ID_REQUIRED", 400, message)
        return Act(call.operation, payload | parts, key, invalid=invalid)

    def _asked(self, path: str) -> Ask | Refusal:
        place, _, reference = path.rpartition("/")
        if any(call.shows == place and call.prefix and reference.startswith(call.prefix) for call in self._calls):
            return Ask(reference=reference)
        return Refusal("unknown_path", 404, f"{path} is no resource of this API that can be asked for")

    def forbids(self, contract: Contract, act: Act, done: Callable[[], Sequence[Shown]]) -> Refusal | None:
        """A capture refunded in full, an order or an authorization captured, is not so again."""
        name = _ONCE.get(act.operation)
        if name is None:
            return None
        field, issue = name
        target = at(act.payload, field)
        for shown in done():
            again = shown.operation == act.operation and at(shown.payload, field) == target
            if again and (act.operation != _REFUND.operation or at(shown.payload, "amount") is None):
                return Refusal(issue, 422, f"{target} was the object of this before", field)
        return None

    def document(self, contract: Contract, shown: Shown) -> dict[str, Any]:
        call = self._by_operation.get(shown.operation, self._calls[0])
        given = shown.payload if isinstance(shown.payload, dict) else {}
        number = f"{call.prefix}ONCE{shown.number:011d}"
        identifier = number if call.prefix else str(given.get("order_id") or number)
        status = {"done": call.done, "pending": "PENDING", "failed": "FAILED"}[shown.state]
        document: dict[str, Any] = {"id": identifier, "status": status}
        document |= {
            name: given[name] for name in ("amount", "intent", "invoice_id", "purchase_units") if name in given
        }
        if "payment_source" in given:
            document["payment_source"] = {name: {} for name in given["payment_source"]}
        link = {"href": f"{_HOST}{call.shows}/{identifier}", "rel": "self", "method": "GET"}
        return document | {"create_time": "2024-01-01T00:00:00Z", "links": [link]}

    def status(self, contract: Contract, shown: Shown) -> int:
        return 201

    def listing(self, contract: Contract, documents: list[dict[str, Any]], ask: Ask) -> dict[str, Any]:
        return {"access_token": "A21AA-once", "token_type": "Bearer", "expires_in": 32400, "scope": _HOST}

    def refusal(self, contract: Contract, refusal: Refusal) -> tuple[int, dict[str, Any]]:
        name, issue = _ERRORS.get(refusal.kind, ("", refusal.kind))
        name = name or _NAMES.get(refusal.status, "INTERNAL_SERVER_ERROR")
        details: dict[str, Any] = {"issue": issue, "description": refusal.message}
        if refusal.param is not None:
            details["field"] = "/" + refusal.param.replace(".", "/")
        document = {
            "name": name,
            "message": refusal.message,
            "debug_id": "once0000000000",
            "details": [details],
            "links": [],
        }
        return (422 if refusal.kind == "declined" else refusal.status), document

    def example(self, contract: Contract, key: str | None, variant: int = 0) -> Request:
        headers = {"authorization": "Bearer A21AA-once", "content-type": "application/json"}
        if key is not None:
            headers["paypal-request-id"] = key
        amount = {"currency_code": "USD", "value": f"{10 + variant}.99"}
        body: dict[str, Any] = {"amount": amount}
        if self._calls[0] is _ORDER:
            body = {"intent": "CAPTURE", "purchase_units": [{"amount": amount}]}
        elif self._calls[0] is _VAULT:
            body = {"payment_source": {"token": {"id": f"ST{variant}", "type": "SETUP_TOKEN"}}}
        path = self._calls[0].path.replace("{capture_id}", "2GG279541U471931P")
        return Request("POST", path, "", headers, json.dumps(body).encode())

    def example_lookup(self, contract: Contract, reference: str | None) -> Request:
        path = f"{self._calls[0].shows}/{reference or ''}"
        return Request("GET", path, "", {"authorization": "Bearer A21AA-once"}, b"")


_ONCE: Mapping[str, tuple[str, str]] = {
    _REFUND.operation: ("capture_id", "CAPTURE_FULLY_REFUNDED"),
    _ORDER_CAPTURE.operation: ("order_id", "ORDER_ALREADY_CAPTURED"),
}
_NAMES = {400: "INVALID_REQUEST", 404: "RESOURCE_NOT_FOUND", 409: "RESOURCE_CONFLICT", 422: "UNPROCESSABLE_ENTITY"}
_ERRORS: Mapping[str, tuple[str, str]] = {
    "unauthorized": ("AUTHENTICATION_FAILURE", "INVALID_TOKEN"),
    "method_not_allowed": ("METHOD_NOT_ALLOWED", "METHOD_NOT_ALLOWED"),
    "malformed": ("", "MALFORMED_REQUEST_JSON"),
    "field_missing": ("", "MISSING_REQUIRED_PARAMETER"),
    "invalid": ("", "INVALID_PARAMETER_VALUE"),
    "key_too_long": ("", "INVALID_STRING_LENGTH"),
    "key_unusable": ("", "INVALID_PARAMETER_SYNTAX"),
    "too_large": ("REQUEST_ENTITY_TOO_LARGE", "REQUEST_ENTITY_TOO_LARGE"),
    "mismatch": ("", "DUPLICATE_REQUEST_ID"),
    "concurrent": ("", "PREVIOUS_REQUEST_IN_PROGRESS"),
    "declined": ("UNPROCESSABLE_ENTITY", "TRANSACTION_REFUSED"),
    "not_found": ("", "INVALID_RESOURCE_ID"),
    "unknown_path": ("", "INVALID_RESOURCE_ID"),
    "failed": ("INTERNAL_SERVER_ERROR", "INTERNAL_SERVICE_ERROR"),
    "unavailable": ("SERVICE_UNAVAILABLE", "SERVICE_UNAVAILABLE"),
}

PAYMENTS = PayPal(_REFUND, _CAPTURE)
ORDERS = PayPal(_ORDER, _ORDER_CAPTURE)
VAULT = PayPal(_VAULT, _SETUP)


def _contract(api: str, kept_s: float, longest: int) -> Contract:
    return Contract(
        name=f"paypal_{api}",
        dialect=f"once_fakes.presets.paypal:{api.upper()}",
        key_header="PayPal-Request-Id",
        max_key_length=longest,
        scope=("endpoint",),
        on_mismatch="unspecified",
        # "May fail" is documented: failing is the harder one of the two for a client.
        on_concurrent="reject",
        stored_outcomes="all",
        on_retry_after_failure="unspecified",
        replay_body="current_state",
        replay_header="",
        retention_s=kept_s,
    )


PAYPAL_PAYMENTS = _contract("payments", 45 * 86400.0, 10_000)
"""PayPal's payments API: ids are kept for 45 days."""

PAYPAL_ORDERS = _contract("orders", 6 * 3600.0, 108)
"""PayPal's orders API: ids are kept for 6 hours, unless more was agreed upon."""

PAYPAL_VAULT = _contract("vault", 3 * 3600.0, 108)
"""PayPal's payment method tokens: ids are kept for 3 hours."""
