"""Resend: mail with idempotency keys that are kept for 24 h.

Not modelled: see `Resend.not_modelled`. Sources: `Resend.source`.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote

from once_fakes.contract import Contract
from once_fakes.dialect import Act, Ask, Dialect, Request, Shown
from once_fakes.presets.bodies import made_at, uuid_of
from once_fakes.presets.documents import json_object
from once_fakes.reply import Refusal

_SEND = "POST /emails"
_NAMES = {
    "unauthorized": "missing_api_key",
    "key_unusable": "invalid_idempotency_key",
    "key_too_long": "invalid_idempotency_key",
    "mismatch": "invalid_idempotent_request",
    "concurrent": "concurrent_idempotent_requests",
    "field_missing": "missing_required_field",
    "method_not_allowed": "method_not_allowed",
    "not_found": "not_found",
    "unknown_path": "not_found",
    "failed": "application_error",
    "unavailable": "application_error",
}
_MESSAGES = {
    "invalid_idempotency_key": "The key must be between 1-256 chars.",
    "invalid_idempotent_request": "Same idempotency key used with a different request payload.",
    "concurrent_idempotent_requests": "Same idempotency key used while original request is still in progress.",
}
_BODIES = ("html", "text", "react", "template")


class Resend(Dialect):
    """POST /emails, GET /emails and GET /emails/<id>."""

    source = (
        "https://resend.com/docs/api-reference/emails/send-email"
        " https://resend.com/docs/dashboard/emails/idempotency-keys"
        " https://resend.com/docs/api-reference/errors"
    )
    not_modelled = (
        "batches, attachments and scheduling are not looked at; any API key is good and all are one account; a list"
        " has one page; mail is said to be sent at once, and no webhooks tell of it"
    )

    def understand(self, contract: Contract, request: Request) -> Act | Ask | Refusal:
        path = request.path.rstrip("/")
        if not request.account:
            return Refusal("unauthorized", 401, "Missing API key in the authorization header.")
        if path == "/emails" and request.method == "POST":
            return self._send(contract, request)
        if request.method != "GET" and (path == "/emails" or path.startswith("/emails/")):
            return Refusal("method_not_allowed", 405, "Method is not allowed for the requested path.")
        if path == "/emails":
            return Ask(place=_SEND)
        collection, _, reference = path.rpartition("/")
        if collection == "/emails":
            return Ask(place=_SEND, reference=unquote(reference))
        return Refusal("unknown_path", 404, "The requested endpoint does not exist.")

    def _send(self, contract: Contract, request: Request) -> Act | Refusal:
        key = request.headers.get(contract.key_header.lower())
        if key == "":
            return Refusal("key_unusable", 400, "The key must be between 1-256 chars.")
        payload = json_object(request)
        if isinstance(payload, Refusal):
            return payload
        return Act(_SEND, payload, key, invalid=_invalid(payload), account=request.account)

    def document(self, contract: Contract, shown: Shown) -> dict[str, Any]:
        asked = shown.payload if isinstance(shown.payload, dict) else {}
        kept = {name: asked.get(name) for name in ("from", "subject", "html", "text")}
        lists = {name: _listed(asked.get(name)) for name in ("to", "cc", "bcc", "reply_to")}
        return {
            "object": "email",
            "id": uuid_of(shown.number),
            **kept,
            **lists,
            "created_at": made_at(shown.number).isoformat(sep=" "),
            "last_event": "sent",
        }

    def answer(self, contract: Contract, shown: Shown) -> dict[str, Any]:
        return {"id": uuid_of(shown.number)}

    def listing(self, contract: Contract, documents: list[dict[str, Any]], ask: Ask) -> dict[str, Any]:
        shown = [{name: mail[name] for name in mail if name not in ("html", "text", "object")} for mail in documents]
        return {"object": "list", "has_more": False, "data": shown[::-1]}

    def refusal(self, contract: Contract, refusal: Refusal) -> tuple[int, dict[str, Any]]:
        name = _NAMES.get(refusal.kind, "validation_error")
        message = _MESSAGES.get(name, refusal.message)
        return refusal.status, {"statusCode": refusal.status, "name": name, "message": message}

    def example(self, contract: Contract, key: str | None, variant: int = 0) -> Request:
        headers = {"content-type": "application/json", "authorization": "Bearer re_123"}
        if key is not None:
            headers[contract.key_header.lower()] = key
        mail = {
            "from": "Acme <billing@acme.test>",
            "to": ["ada@example.test"],
            "subject": f"Receipt {key}",
            "text": f"You paid {100 + variant}.",
        }
        return Request("POST", "/emails", "", headers, json.dumps(mail).encode("ascii"))

    def example_lookup(self, contract: Contract, reference: str | None) -> Request:
        path = "/emails" if reference is None else f"/emails/{reference}"
        return Request("GET", path, "", {"authorization": "Bearer re_123"}, b"")


def _invalid(mail: dict[str, Any]) -> Refusal | None:
    for name in ("from", "to", "subject"):
        if mail.get(name) in (None, "", []):
            if name == "subject" and "template" in mail:
                continue
            return Refusal("field_missing", 422, f"Missing `{name}` field.", name)
    for name in ("from", "subject", "html", "text"):
        if name in mail and not isinstance(mail[name], str | None):
            return Refusal("invalid", 400, f"The `{name}` field must be a `string`.", name)
    for name in ("to", "cc", "bcc", "reply_to"):
        addresses = _listed(mail.get(name))
        if not all(isinstance(one, str) and "@" in one for one in addresses) or len(addresses) > 50:
            return Refusal("invalid", 400, f"Invalid `{name}` field. Give up to 50 email addresses.", name)
    if "@" not in str(mail["from"]):
        return Refusal("invalid", 400, "Invalid `from` field. Give an email address.", "from")
    if not any(mail.get(name) for name in _BODIES):
        return Refusal("field_missing", 422, "Missing `html` or `text` field.", "html")
    return None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


DIALECT = Resend()

RESEND = Contract(
    name="resend",
    dialect="once_fakes.presets.resend:DIALECT",
    max_key_length=256,
    mismatch_status=409,
    on_concurrent="reject",
    replay_header="",
    retention_s=86400.0,
    lookup="list_only",
)
"""Keys of up to 256 characters, for 24 h; another payload and a concurrent request are refused with 409."""
