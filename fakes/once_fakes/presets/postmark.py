"""Postmark: mail without idempotency keys; what was sent can be searched.

Not modelled: see `Postmark.not_modelled`. Sources: `Postmark.source`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from email.utils import getaddresses
from typing import Any
from urllib.parse import unquote

from once_fakes.contract import Contract
from once_fakes.dialect import Act, Ask, Dialect, Request, Shown
from once_fakes.presets.bodies import made_at, texts, uuid_of
from once_fakes.presets.documents import json_object
from once_fakes.reading import form_of
from once_fakes.reply import Refusal

_SEND = "POST /email"
_OUTBOUND = "/messages/outbound"
_TOKEN = "x-postmark-server-token"
_FILTERS = {"recipient": "To", "fromemail": "From", "tag": "Tag", "subject": "Subject"}
_CODES = {
    "unauthorized": 10,
    "malformed": 402,
    "incompatible": 403,
    "not_found": 701,
    "unavailable": 100,
    "not_json": 409,
}
_STATUSES = {"malformed": 422, "not_found": 422, "not_json": 415}
_MOST_RECIPIENTS = 50


@dataclass(frozen=True, slots=True)
class Page(Ask):
    """A part of a list: at most so many entries from the one of that number, 0 for the newest."""

    first: int = 0
    most: int = 500


class Postmark(Dialect):
    """POST /email, GET /messages/outbound and GET /messages/outbound/<id>/details."""

    source = (
        "https://postmarkapp.com/developer/api/overview https://postmarkapp.com/developer/api/email-api"
        " https://postmarkapp.com/developer/api/messages-api"
    )
    not_modelled = (
        "any token is good and all are one server; batches, templates and streams are not looked at; searches by time"
        " or status show everything, the filters for addresses compare the whole field, and what is sent can be"
        " searched at once, which is not documented; no webhooks tell of it"
    )

    def understand(self, contract: Contract, request: Request) -> Act | Ask | Refusal:
        path = request.path.rstrip("/")
        if not request.account:
            return Refusal("unauthorized", 401, "No Account or Server API tokens were supplied in the HTTP headers.")
        asked = re.fullmatch(rf"{_OUTBOUND}/([^/]+)/details", path)
        if path not in ("/email", _OUTBOUND) and not asked:
            return Refusal("unknown_path", 404, "The requested resource does not exist.")
        if request.method != ("POST" if path == "/email" else "GET"):
            return Refusal("method_not_allowed", 405, f"The resource does not answer {request.method}.")
        if asked:
            return Ask(place=_SEND, reference=unquote(asked[1]))
        return self._search(request) if path == _OUTBOUND else self._send(request)

    def _search(self, request: Request) -> Ask | Refusal:
        query = texts(form_of(request.query))
        for name, most in (("count", 500), ("offset", 10_000)):
            given = query.get(name, "")
            if not re.fullmatch("[0-9]{1,5}", given) or int(given) > most:
                return Refusal("invalid", 422, f"The parameter '{name}' must be a number up to {most}.", name)
        where = {field: query[name] for name, field in _FILTERS.items() if name in query}
        where |= {f"Metadata.{name[9:]}": value for name, value in query.items() if name.startswith("metadata_")}
        return Page(_SEND, where=where, first=int(query["offset"]), most=int(query["count"]))

    def _send(self, request: Request) -> Act | Refusal:
        if "json" not in request.headers.get("content-type", "").lower():
            return Refusal("not_json", 415, "The Content-Type of the request must be application/json.")
        payload = json_object(request)
        if isinstance(payload, Refusal):
            return payload
        return Act(_SEND, payload, invalid=_invalid(payload), account=request.account)

    def document(self, contract: Contract, shown: Shown) -> dict[str, Any]:
        mail = texts(shown.payload)
        asked = shown.payload if isinstance(shown.payload, dict) else {}
        return {
            "MessageID": uuid_of(shown.number),
            "From": mail.get("From", ""),
            **{name: _addresses(mail.get(name, "")) for name in ("To", "Cc", "Bcc")},
            "Recipients": [one["Email"] for name in ("To", "Cc", "Bcc") for one in _addresses(mail.get(name, ""))],
            "Subject": mail.get("Subject", ""),
            "Tag": mail.get("Tag", ""),
            "TextBody": mail.get("TextBody", ""),
            "HtmlBody": mail.get("HtmlBody", ""),
            "Metadata": asked.get("Metadata", {}),
            "ReceivedAt": made_at(shown.number).isoformat(),
            "Status": "Sent",
        }

    def identifier(self, contract: Contract, shown: Shown) -> str:
        return uuid_of(shown.number)

    def answer(self, contract: Contract, shown: Shown) -> dict[str, Any]:
        return {
            "To": texts(shown.payload).get("To", ""),
            "SubmittedAt": made_at(shown.number).isoformat(),
            "MessageID": uuid_of(shown.number),
            "ErrorCode": 0,
            "Message": "OK",
        }

    def listing(self, contract: Contract, documents: list[dict[str, Any]], ask: Ask) -> dict[str, Any]:
        first, most = (ask.first, ask.most) if isinstance(ask, Page) else (0, 500)
        shown = [{name: mail[name] for name in mail if not name.endswith("Body")} for mail in reversed(documents)]
        return {"TotalCount": len(documents), "Messages": shown[first : first + most]}

    def refusal(self, contract: Contract, refusal: Refusal) -> tuple[int, dict[str, Any]]:
        code = _CODES.get(refusal.kind, 300 if refusal.status < 500 else refusal.status)
        return _STATUSES.get(refusal.kind, refusal.status), {"ErrorCode": code, "Message": refusal.message}

    def example(self, contract: Contract, key: str | None, variant: int = 0) -> Request:
        mail = {
            "From": "billing@acme.test",
            "To": "ada@example.test",
            "Subject": f"Receipt {key}",
            "TextBody": f"You paid {100 + variant}.",
            "Metadata": {"order": str(key)},
        }
        headers = {"content-type": "application/json", _TOKEN: "123"}
        return Request("POST", "/email", "", headers, json.dumps(mail).encode("ascii"))

    def example_lookup(self, contract: Contract, reference: str | None) -> Request:
        if reference is None:
            return Request("GET", _OUTBOUND, "count=50&offset=0", {_TOKEN: "123"}, b"")
        return Request("GET", f"{_OUTBOUND}/{reference}/details", "", {_TOKEN: "123"}, b"")


def _invalid(mail: dict[str, Any]) -> Refusal | None:
    given = texts(mail)
    for name in ("From", "To", "Cc", "Bcc", "Subject", "TextBody", "HtmlBody", "Tag"):
        if name in mail and not isinstance(mail[name], str | None):
            return Refusal("incompatible", 422, f"The field '{name}' must be a text.", name)
    for name in ("From", "To"):
        if not _addresses(given.get(name, "")):
            return Refusal("invalid", 422, f"Invalid '{name}' address: '{given.get(name, '')}'.", name)
    recipients = [one for name in ("To", "Cc", "Bcc") for one in _addresses(given.get(name, ""))]
    if len(recipients) > _MOST_RECIPIENTS:
        return Refusal("invalid", 422, f"A message has at most {_MOST_RECIPIENTS} recipients.", "To")
    if "TextBody" not in given and "HtmlBody" not in given:
        return Refusal("invalid", 422, "Provide either email TextBody or HtmlBody or both.", "TextBody")
    metadata = mail.get("Metadata")
    if metadata is not None and (not isinstance(metadata, dict) or len(texts(metadata)) < len(metadata)):
        return Refusal("incompatible", 422, "The field 'Metadata' must be an object of texts.", "Metadata")
    return None


def _addresses(field: str) -> list[dict[str, str]]:
    return [{"Email": address, "Name": name} for name, address in getaddresses([field]) if "@" in address]


DIALECT = Postmark()

POSTMARK = Contract(
    name="postmark",
    dialect="once_fakes.presets.postmark:DIALECT",
    dedup="none",
    replay_header="",
    lookup="list_only",
)
"""No idempotency key; what was sent can be searched, also by the metadata that the client gave it."""
