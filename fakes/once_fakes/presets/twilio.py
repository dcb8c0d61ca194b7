"""Twilio's messages: no idempotency key; what was sent is listed.

Not modelled: see `Twilio.not_modelled`. Sources: `Twilio.source`.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlencode

from once_fakes.contract import Contract
from once_fakes.dialect import Act, Ask, Dialect, Request, Shown
from once_fakes.presets.bodies import form_fields, made_at, texts
from once_fakes.reading import form_of
from once_fakes.reply import Refusal

_MESSAGES = re.compile(r"/2010-04-01/Accounts/([A-Za-z0-9]+)/Messages(?:/([A-Za-z0-9]+))?\.json")
_NUMBER = re.compile(r"\+[1-9][0-9]{6,14}|[a-z]+:\S+")
_CODES = {
    "unauthorized": 20003,
    "method_not_allowed": 20004,
    "not_found": 20404,
    "unknown_path": 20404,
    "failed": 20500,
    "unavailable": 20503,
    "body_missing": 21602,
    "from_missing": 21603,
    "to_missing": 21604,
    "to_invalid": 21211,
    "body_too_long": 21617,
}
_LONGEST_BODY = 1600
_ACCOUNT = "AC00000000000000000000000000000001"
_EXAMPLE_PATH = f"/2010-04-01/Accounts/{_ACCOUNT}/Messages.json"
_BASIC = "Basic QUMxOnNlY3JldA=="


class Twilio(Dialect):
    """POST and GET /2010-04-01/Accounts/<sid>/Messages.json, and GET of one message."""

    source = (
        "https://www.twilio.com/docs/messaging/api/message-resource https://www.twilio.com/docs/api/errors/20500"
        " https://www.twilio.com/docs/api/errors"
    )
    not_modelled = (
        "any credentials are good; a list has one page, and the filters by DateSent show everything; messages are"
        " queued for ever, and no status callback tells of them; what is sent is listed at once, which is not"
        " documented"
    )

    def understand(self, contract: Contract, request: Request) -> Act | Ask | Refusal:
        if not request.account:
            return Refusal("unauthorized", 401, "Authenticate")
        named = _MESSAGES.fullmatch(request.path)
        if named is None:
            return Refusal("unknown_path", 404, f"The requested resource {request.path} was not found")
        account, sid = named.groups()
        operation = f"POST /2010-04-01/Accounts/{account}/Messages.json"
        if request.method == "GET":
            if sid is not None:
                return Ask(place=operation, reference=sid)
            query = texts(form_of(request.query))
            return Ask(place=operation, where={name: query[name] for name in ("To", "From") if name in query})
        if request.method != "POST" or sid is not None:
            return Refusal("method_not_allowed", 405, "Method not allowed")
        fields = form_fields(request)
        if isinstance(fields, Refusal):
            return fields
        return Act(operation, fields, invalid=_invalid(fields), account=account)

    def document(self, contract: Contract, shown: Shown) -> dict[str, Any]:
        asked = texts(shown.payload)
        account = shown.operation.removeprefix("POST /2010-04-01/Accounts/").partition("/")[0]
        sid = f"SM{shown.number:032x}"
        uri = f"/2010-04-01/Accounts/{account}/Messages/{sid}"
        made = made_at(shown.number).strftime("%a, %d %b %Y %H:%M:%S +0000")
        media = shown.payload.get("MediaUrl", []) if isinstance(shown.payload, dict) else []
        return {
            "sid": sid,
            "account_sid": account,
            "messaging_service_sid": asked.get("MessagingServiceSid"),
            "to": asked.get("To"),
            "from": asked.get("From"),
            "body": asked.get("Body", ""),
            "status": "queued",
            "direction": "outbound-api",
            "num_segments": "1",
            "num_media": str(len(media) if isinstance(media, list) else 1),
            "date_created": made,
            "date_updated": made,
            "date_sent": None,
            "price": None,
            "price_unit": None,
            "error_code": None,
            "error_message": None,
            "api_version": "2010-04-01",
            "uri": f"{uri}.json",
            "subresource_uris": {"media": f"{uri}/Media.json"},
        }

    def identifier(self, contract: Contract, shown: Shown) -> str:
        return f"SM{shown.number:032x}"

    def status(self, contract: Contract, shown: Shown) -> int:
        return 201

    def listing(self, contract: Contract, documents: list[dict[str, Any]], ask: Ask) -> dict[str, Any]:
        uri = f"{(ask.place or '').removeprefix('POST ')}?Page=0&PageSize=50"
        return {
            "messages": documents[::-1],
            "page": 0,
            "page_size": 50,
            "start": 0,
            "end": max(0, len(documents) - 1),
            "uri": uri,
            "first_page_uri": uri,
            "next_page_uri": None,
            "previous_page_uri": None,
        }

    def refusal(self, contract: Contract, refusal: Refusal) -> tuple[int, dict[str, Any]]:
        code = _CODES.get(refusal.kind, 20001)
        more = f"https://www.twilio.com/docs/errors/{code}"
        return refusal.status, {"code": code, "message": refusal.message, "more_info": more, "status": refusal.status}

    def example(self, contract: Contract, key: str | None, variant: int = 0) -> Request:
        asked = {"To": "+15558675310", "From": "+15017122661", "Body": f"Receipt {key}: {100 + variant}"}
        headers = {"content-type": "application/x-www-form-urlencoded", "authorization": _BASIC}
        return Request("POST", _EXAMPLE_PATH, "", headers, urlencode(asked).encode("ascii"))

    def example_lookup(self, contract: Contract, reference: str | None) -> Request:
        path = _EXAMPLE_PATH if reference is None else _EXAMPLE_PATH.replace(".json", f"/{reference}.json")
        return Request("GET", path, "", {"authorization": _BASIC}, b"")


def _invalid(fields: dict[str, Any]) -> Refusal | None:
    given = texts(fields)
    if "To" not in given:
        return Refusal("to_missing", 400, "A 'To' phone number is required.", "To")
    if not _NUMBER.fullmatch(given["To"]):
        return Refusal("to_invalid", 400, f"The 'To' number {given['To']} is not a valid phone number.", "To")
    if "From" not in given and "MessagingServiceSid" not in given:
        return Refusal("from_missing", 400, "A 'From' phone number is required.", "From")
    if not any(fields.get(name) for name in ("Body", "MediaUrl", "ContentSid")):
        return Refusal("body_missing", 400, "Message body is required.", "Body")
    if len(given.get("Body", "")) > _LONGEST_BODY:
        message = "The concatenated message body exceeds the 1600 character limit."
        return Refusal("body_too_long", 400, message, "Body")
    return None


DIALECT = Twilio()

TWILIO = Contract(
    name="twilio",
    dialect="once_fakes.presets.twilio:DIALECT",
    dedup="none",
    replay_header="",
    lookup="list_only",
)
"""Sending a message is documented as not idempotent; messages are listed by To and From."""
