"""Stripe's API v1: refunds, charges and payment intents.

A POST under an `Idempotency-Key` is answered as the first one under that key was, with its status and body, server
errors included; a replay has the header `Idempotent-Replayed: true`. Another endpoint or other parameters under the key
are an `idempotency_error` (400), a key whose request is still worked on is `idempotency_key_in_use` (409). What comes
before execution is not kept: invalid parameters, conflicts, a missing API key (401). A key may be forgotten once it is
24 hours old, and then acts anew. Sources, and what is not modelled: see `Stripe`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from once_fakes.contract import Contract
from once_fakes.dialect import Act, Ask, Dialect, Request, Shown
from once_fakes.presets.fields import at
from once_fakes.presets.stripe_form import nested_form, search_terms
from once_fakes.presets.stripe_resources import REFUNDS, RESOURCES, Resource
from once_fakes.reply import Refusal

BORN_S = 1_700_000_000
"""The `created` of what was made before the provider's first effect: instants are state, so they are made up."""


def account_of(request: Request) -> str:
    """Whose keys they are: a digest of the credentials, and the connected account; "" without credentials."""
    account, connected = request.account, request.headers.get("stripe-account", "")
    return f"{account} {connected}" if account and connected else account


class Stripe(Dialect):
    """Stripe API v1 on the wire."""

    source = (
        "https://docs.stripe.com/api/idempotent_requests https://docs.stripe.com/error-low-level"
        " https://docs.stripe.com/api/errors https://docs.stripe.com/api/refunds"
    )
    not_modelled = (
        "Pages of lists (everything is on one), expanding, confirming or capturing an intent later, balances, what is"
        " left of a charge that was not made here unless it was refunded in full, Request-Id and Stripe-Should-Retry."
        " An account is known by its Authorization header as it stands."
        " The lag of searches is explored as the fault stale-read."
    )

    def understand(self, contract: Contract, request: Request) -> Act | Ask | Refusal:
        if not request.account:
            message = "no API key was given: send it as `Authorization: Bearer KEY`"
            return Refusal("unauthorized", 401, message, headers=(("www-authenticate", 'Bearer realm="Stripe"'),))
        path = request.path.rstrip("/")
        resource = RESOURCES.get(path)
        if request.method in ("GET", "HEAD"):
            return self._asked(request, path, resource)
        if resource is None or request.method != "POST":
            return _unknown(request)
        try:
            payload = nested_form(request.headers.get("content-type", ""), request.body)
        except ValueError as error:
            return Refusal("malformed", 400, str(error))
        return Act(
            resource.operation,
            payload,
            request.headers.get(contract.key_header.lower()),
            invalid=resource.wrong(payload),
            account=account_of(request),
        )

    def _asked(self, request: Request, path: str, resource: Resource | None) -> Ask | Refusal:
        try:
            asked = nested_form("", request.query.encode())
        except ValueError as error:
            return Refusal("malformed", 400, str(error))
        if resource is not None:
            where = {name: str(asked[name]) for name in resource.filters if name in asked}
            return Ask(resource.operation, where=where)
        collection, _, last = path.rpartition("/")
        resource = RESOURCES.get(collection)
        if resource is None:
            return _unknown(request)
        if last != "search" or not resource.searched:
            return Ask(resource.operation, unquote(last))
        terms = search_terms(asked.get("query"))
        if terms is None:
            return Refusal("invalid", 400, 'a query is like metadata["order"]:"6735" AND amount:500', "query")
        return Ask(resource.operation, where=terms)

    def forbids(self, contract: Contract, act: Act, done: Callable[[], Sequence[Shown]]) -> Refusal | None:
        """A charge cannot be refunded when it is refunded in full, or by more than is left of it."""
        if act.operation != REFUNDS.operation:
            return None
        paid = at(act.payload, "charge") or at(act.payload, "payment_intent")
        earlier = [shown for shown in done() if shown.state != "failed"]
        refunds = [
            _amount(shown.payload)
            for shown in earlier
            if shown.operation == act.operation
            and paid in (at(shown.payload, "charge"), at(shown.payload, "payment_intent"))
        ]
        amounts = {self.identifier(contract, shown): _amount(shown.payload) for shown in earlier}
        total, asked = amounts.get(str(paid)), _amount(act.payload)
        left = None if total is None else total - sum(refund or 0 for refund in refunds)
        if None in refunds or left == 0:
            return Refusal("charge_already_refunded", 400, f"{paid} has been refunded already", "charge")
        if left is not None and (asked or 0) > left:
            return Refusal("invalid", 400, f"the refund of {asked} is more than the {left} left of {paid}", "amount")
        return None

    def document(self, contract: Contract, shown: Shown) -> dict[str, Any]:
        resource = RESOURCES.get(shown.operation.partition(" ")[2]) or REFUNDS
        given = shown.payload if isinstance(shown.payload, dict) else {}
        document = {
            "id": f"{resource.prefix}_once{shown.number:020d}",
            "object": resource.name,
            "amount": given.get("amount"),
            "created": BORN_S + shown.number,
            "currency": given.get("currency") or "usd",
            "metadata": given.get("metadata") or {},
            "status": _STATES[shown.state],
        }
        if resource.name == "refund":
            kept = {name: given.get(name) for name in ("charge", "payment_intent", "reason")}
            return document | kept | {"balance_transaction": None, "receipt_number": None}
        document |= {"customer": given.get("customer"), "description": given.get("description"), "livemode": False}
        if resource.name == "charge":
            return document | {"captured": True, "paid": shown.state == "done", "refunded": False}
        confirmed, method = str(given.get("confirm")) == "true", given.get("payment_method")
        status = "succeeded" if confirmed else "requires_confirmation" if method else "requires_payment_method"
        secret = f"{document['id']}_secret_once"
        return document | {"status": status, "payment_method": method, "client_secret": secret}

    def listing(self, contract: Contract, documents: list[dict[str, Any]], ask: Ask) -> dict[str, Any]:
        url = (ask.place or "").partition(" ")[2]
        # The newest comes first.
        return {"object": "list", "url": url, "has_more": False, "data": documents[::-1]}

    def event(self, contract: Contract, shown: Shown) -> tuple[str, dict[str, Any]]:
        document = self.document(contract, shown)
        kind = f"{document['object']}.{'failed' if shown.state == 'failed' else 'updated'}"
        return kind, {"object": "event", "type": kind, "created": document["created"], "data": {"object": document}}

    def refusal(self, contract: Contract, refusal: Refusal) -> tuple[int, dict[str, Any]]:
        kind, code = _ERRORS.get(refusal.kind, ("invalid_request_error", None))
        error: dict[str, Any] = {"type": kind, "message": refusal.message}
        if code is not None:
            error |= {"code": code, "doc_url": f"https://stripe.com/docs/error-codes/{code.replace('_', '-')}"}
        if refusal.kind == "declined":
            error["decline_code"] = "generic_decline"
        if refusal.param is not None and kind == "invalid_request_error":
            error["param"] = refusal.param
        return refusal.status, {"error": error}

    def example(self, contract: Contract, key: str | None, variant: int = 0) -> Request:
        headers = {"authorization": "Bearer sk_test_once", "content-type": "application/x-www-form-urlencoded"}
        body = f"charge=ch_example&amount={100 + variant}"
        if key is not None:
            headers["idempotency-key"] = key
            body += "&metadata[order]=" + "".join(c if c.isalnum() else f"%{ord(c):02X}" for c in key)
        return Request("POST", "/v1/refunds", "", headers, body.encode())

    def example_lookup(self, contract: Contract, reference: str | None) -> Request:
        path = "/v1/refunds" if reference is None else f"/v1/refunds/{reference}"
        return Request("GET", path, "", {"authorization": "Bearer sk_test_once"}, b"")


_STATES: Mapping[str, str] = {"done": "succeeded", "pending": "pending", "failed": "failed"}
_ERRORS: Mapping[str, tuple[str, str | None]] = {
    "mismatch": ("idempotency_error", None),
    "concurrent": ("idempotency_error", "idempotency_key_in_use"),
    "declined": ("card_error", "card_declined"),
    "failed": ("api_error", None),
    "unavailable": ("api_error", None),
    "not_found": ("invalid_request_error", "resource_missing"),
    "field_missing": ("invalid_request_error", "parameter_missing"),
    "parameter_unknown": ("invalid_request_error", "parameter_unknown"),
    "charge_already_refunded": ("invalid_request_error", "charge_already_refunded"),
}


def _amount(payload: object) -> int | None:
    amount = at(payload, "amount")
    return amount if type(amount) is int else None if amount is None else 0


def _unknown(request: Request) -> Refusal:
    return Refusal(
        "unknown_path", 404, f"nothing answers {request.method} {request.path}; see https://docs.stripe.com/api"
    )


STRIPE = Stripe()

STRIPE_V1 = Contract(
    name="stripe_v1",
    dialect="once_fakes.presets.stripe:STRIPE",
    scope=("account",),
    on_mismatch="error",
    mismatch_status=400,
    on_concurrent="reject",
    concurrent_status=409,
    stored_outcomes="all",
    on_retry_after_failure="replay",
    record_point="validated",
    replay_body="original",
    retention_s=(86400.0, None),
    lookup="list_only",
)
"""Stripe's API v1."""
