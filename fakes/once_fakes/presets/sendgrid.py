"""SendGrid's mail send: accepted with 202 and no body, and without any idempotency key.

Not modelled: see `SendGrid.not_modelled`. Sources: `SendGrid.source`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from once_fakes.contract import Contract
from once_fakes.dialect import Act, Ask, Dialect, Request, Shown
from once_fakes.presets.documents import json_object
from once_fakes.reply import Refusal, Reply

_PATH = "/v3/mail/send"
_MESSAGE_ID = "x-message-id"


class SendGrid(Dialect):
    """POST /v3/mail/send."""

    source = (
        "https://www.twilio.com/docs/sendgrid/api-reference/mail-send/mail-send"
        " https://www.twilio.com/docs/sendgrid/api-reference/mail-send/errors"
    )
    not_modelled = (
        "any API key is good; templates, schedules and batches are not looked at; the activity feed, which is an"
        " extra, and event webhooks do not exist, so nobody can ask what was sent"
    )

    def understand(self, contract: Contract, request: Request) -> Act | Ask | Refusal:
        if not request.account:
            return Refusal("unauthorized", 401, "authorization required")
        if request.path.rstrip("/") != _PATH:
            return Refusal("unknown_path", 404, "not found")
        if request.method != "POST":
            return Refusal("method_not_allowed", 405, "method not allowed", headers=(("allow", "POST"),))
        payload = json_object(request)
        if isinstance(payload, Refusal):
            return payload
        return Act(f"POST {_PATH}", payload, invalid=_invalid(payload), account=request.account)

    def document(self, contract: Contract, shown: Shown) -> dict[str, Any]:
        return {_MESSAGE_ID: f"{shown.number:022d}"}

    def status(self, contract: Contract, shown: Shown) -> int:
        return 202

    def identifier(self, contract: Contract, shown: Shown) -> str:
        return f"{shown.number:022d}"

    def reply(
        self,
        status: int,
        body: dict[str, Any],
        outcome: str,
        *,
        headers: Mapping[str, str] | None = None,
        arrival: int | None = None,
    ) -> Reply:
        if _MESSAGE_ID in body:
            return Reply(status, {_MESSAGE_ID: body[_MESSAGE_ID], **(headers or {})}, body, outcome, arrival, b"")
        return super().reply(status, body, outcome, headers=headers, arrival=arrival)

    def refusal(self, contract: Contract, refusal: Refusal) -> tuple[int, dict[str, Any]]:
        return refusal.status, {"errors": [{"message": refusal.message, "field": refusal.param, "help": None}]}

    def example(self, contract: Contract, key: str | None, variant: int = 0) -> Request:
        mail = {
            "personalizations": [{"to": [{"email": "ada@example.test"}]}],
            "from": {"email": "billing@acme.test"},
            "subject": f"Receipt {key}",
            "content": [{"type": "text/plain", "value": f"You paid {100 + variant}."}],
        }
        headers = {"content-type": "application/json", "authorization": "Bearer SG.123"}
        return Request("POST", _PATH, "", headers, json.dumps(mail).encode("ascii"))

    def example_lookup(self, contract: Contract, reference: str | None) -> Request:
        return Request("GET", _PATH, "", {"authorization": "Bearer SG.123"}, b"")


def _invalid(mail: dict[str, Any]) -> Refusal | None:
    blocks = mail.get("personalizations")
    if not isinstance(blocks, list) or not blocks:
        return Refusal("invalid", 400, "You must have at least one personalization.", "personalizations")
    for number, block in enumerate(blocks):
        recipients = block.get("to") if isinstance(block, dict) else None
        if not isinstance(recipients, list) or not recipients or not all(map(_is_address, recipients)):
            message = "Each to object must at least have an email address and may also contain a name."
            return Refusal("invalid", 400, message, f"personalizations.{number}.to")
    if not _is_address(mail.get("from")):
        message = "The from object must be provided for every email send, with an email parameter."
        return Refusal("invalid", 400, message, "from.email")
    if "template_id" in mail:
        return None
    if not _is_text(mail.get("subject")) and not all(_is_text(block.get("subject")) for block in blocks):
        return Refusal("invalid", 400, "The subject is required: a text of at least one character.", "subject")
    contents = mail.get("content")
    if not isinstance(contents, list) or not contents:
        return Refusal("invalid", 400, "Unless a valid template_id is provided, the content is required.", "content")
    for number, content in enumerate(contents):
        if not isinstance(content, dict) or not _is_text(content.get("type")) or not _is_text(content.get("value")):
            message = "The content value must be a string at least one character in length."
            return Refusal("invalid", 400, message, f"content.{number}.value")
    return None


def _is_address(value: object) -> bool:
    return isinstance(value, dict) and _is_text(value.get("email")) and "@" in value["email"]


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


DIALECT = SendGrid()

SENDGRID = Contract(name="sendgrid", dialect="once_fakes.presets.sendgrid:DIALECT", dedup="none", replay_header="")
"""No idempotency key, and nobody can ask what was sent."""
