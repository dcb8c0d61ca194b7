"""Slack's chat.postMessage: no idempotency key for apps, and refusals with status 200.

Not modelled: see `Slack.not_modelled`. Sources: `Slack.source`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from once_fakes.contract import Contract
from once_fakes.dialect import Act, Ask, Dialect, Request, Shown
from once_fakes.presets.bodies import form_fields, made_at, texts
from once_fakes.presets.documents import json_object
from once_fakes.reading import form_of
from once_fakes.reply import Refusal

_POST = "POST /api/chat.postMessage"
_ERRORS = {
    "unauthorized": "not_authed",
    "unknown_path": "unknown_method",
    "method_not_allowed": "invalid_post_type",
    "malformed": "invalid_json",
    "form_malformed": "invalid_form_data",
    "too_large": "msg_too_long",
    "not_found": "channel_not_found",
    "declined": "restricted_action",
    "failed": "internal_error",
    "unavailable": "service_unavailable",
}
_LONGEST_TEXT = 40_000
_CONTENTS = ("text", "blocks", "attachments")
_KEPT = ("text", "blocks", "attachments", "thread_ts", "metadata")


class Slack(Dialect):
    """The methods chat.postMessage and conversations.history, below /api/."""

    source = (
        "https://docs.slack.dev/reference/methods/chat.postMessage"
        " https://docs.slack.dev/reference/methods/conversations.history"
    )
    not_modelled = (
        "any token is good; every channel exists, and is called by the name or id that was used; history has one page"
        " without replies, and shows everything whatever its time limits; rate limits; which status goes with a"
        " server's error is not documented"
    )

    def understand(self, contract: Contract, request: Request) -> Act | Ask | Refusal:
        if request.method not in ("GET", "POST"):
            return Refusal("method_not_allowed", 405, "only GET and POST are answered")
        asked: dict[str, Any] = dict(form_of(request.query))
        if request.method == "POST":
            media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            read = json_object(request) if media_type == "application/json" else form_fields(request)
            if isinstance(read, Refusal):
                return read if media_type == "application/json" else replace(read, kind="form_malformed")
            asked |= read
        token = asked.pop("token", None)
        if not request.account and not token:
            return Refusal("unauthorized", 200, "no token")
        channel = texts(asked).get("channel")
        match request.path:
            case "/api/chat.postMessage" if request.method == "POST":
                return Act(_POST, asked, invalid=_invalid(asked), account=request.account)
            case "/api/conversations.history" if channel is None:
                return Refusal("not_found", 200, "no channel")
            case "/api/conversations.history":
                return Ask(place=_POST, where={"channel": channel or ""})
        return Refusal("unknown_path", 200, "no such method")

    def document(self, contract: Contract, shown: Shown) -> dict[str, Any]:
        asked = shown.payload if isinstance(shown.payload, dict) else {}
        kept = {name: asked[name] for name in _KEPT if name in asked}
        return {"type": "message", "text": "", **kept, "bot_id": "B0000000001", "ts": _ts(shown)}

    def identifier(self, contract: Contract, shown: Shown) -> str:
        return _ts(shown)

    def answer(self, contract: Contract, shown: Shown) -> dict[str, Any]:
        channel = texts(shown.payload).get("channel", "")
        return {"ok": True, "channel": channel, "ts": _ts(shown), "message": self.document(contract, shown)}

    def listing(self, contract: Contract, documents: list[dict[str, Any]], ask: Ask) -> dict[str, Any]:
        metadata = {"next_cursor": ""}
        return {"ok": True, "messages": documents[::-1], "has_more": False, "response_metadata": metadata}

    def refusal(self, contract: Contract, refusal: Refusal) -> tuple[int, dict[str, Any]]:
        status = refusal.status if refusal.kind in ("method_not_allowed", "failed", "unavailable") else 200
        return status, {"ok": False, "error": _ERRORS.get(refusal.kind, refusal.kind)}

    def example(self, contract: Contract, key: str | None, variant: int = 0) -> Request:
        asked = {"channel": "C0000000001", "text": f"Receipt {key}: {100 + variant}"}
        headers = {"content-type": "application/json; charset=utf-8", "authorization": "Bearer xoxb-1"}
        return Request("POST", "/api/chat.postMessage", "", headers, json.dumps(asked).encode("ascii"))

    def example_lookup(self, contract: Contract, reference: str | None) -> Request:
        headers = {"authorization": "Bearer xoxb-1"}
        return Request("GET", "/api/conversations.history", "channel=C0000000001", headers, b"")


def _ts(shown: Shown) -> str:
    return f"{int(made_at(0).timestamp())}.{shown.number:06d}"


def _invalid(asked: dict[str, Any]) -> Refusal | None:
    given = texts(asked)
    if "channel" not in given:
        return Refusal("channel_not_found", 200, "no channel", "channel")
    if not any(asked.get(name) for name in _CONTENTS):
        return Refusal("no_text", 200, "no text", "text")
    if not isinstance(asked.get("text", ""), str):
        return Refusal("invalid_arguments", 200, "text is no text", "text")
    if len(given.get("text", "")) > _LONGEST_TEXT:
        return Refusal("msg_too_long", 200, "text is too long", "text")
    return None


DIALECT = Slack()

SLACK = Contract(
    name="slack",
    dialect="once_fakes.presets.slack:DIALECT",
    dedup="none",
    replay_header="",
    lookup="list_only",
)
"""No idempotency key: client_msg_id is not for apps. A channel's history shows what was posted."""
