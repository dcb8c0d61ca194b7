"""How a provider speaks: what its requests mean, and what its answers look like."""

from __future__ import annotations

import importlib
import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from once_fakes.contract import Contract
from once_fakes.reading import form_of, payload_of
from once_fakes.reply import Refusal, Reply, error_document
from pytest_once.ledger import account_of, canonical_payload, region_of

ACTING_METHODS = ("POST", "PUT", "PATCH", "DELETE")
ASKING_METHODS = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request below the provider's address. path: percent-encoded, without query. headers: names in small."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def account(self) -> str:
        """Who asks: a digest of what the request authenticates with, "" if with nothing."""
        return account_of(self.headers)

    @property
    def region(self) -> str:
        """The region that the request is for, "" if it names none."""
        return region_of(self.headers)


@dataclass(frozen=True, slots=True)
class Act:
    """A request that acts, as a contract looks at it.

    operation: "POST /v1/refunds". payload: what is asked, as a JSON value; what identifies one attempt only must not be
    in it. key: the client's idempotency key. precondition: the version that a conditional request is for, "" for
    "there must be none yet". sequence: a producer's session and the number of the request in it, where the dialect
    keeps them out of the payload. invalid: why the request cannot be done whatever its key; stored or not as the
    contract says: a "declined" one like a refusal of the business, another one only where keys are taken on arrival.
    account, region, session: what keys may be unique within.
    """

    operation: str
    payload: Any
    key: str | None = None
    precondition: str | None = None
    sequence: tuple[str, int] | None = None
    invalid: Refusal | None = None
    account: str = ""
    region: str = ""
    session: str = ""

    @property
    def canonical(self) -> str:
        """The payload as text, equal for equal payloads."""
        return canonical_payload(self.payload)


@dataclass(frozen=True, slots=True)
class Ask:
    """A look-up. place: the operation whose effects are meant ("POST /v1/refunds"), None for all.

    reference: id, client reference or key of one effect; None for a list. where: payload fields (or dotted paths) that
    must have these texts. path: instead of the others, a path of which it is not known whether it names a collection or
    one member: see `once_fakes.looking.answer`. at_once: it shows what other look-ups show visibility_lag_s later.
    """

    place: str | None = None
    reference: str | None = None
    where: Mapping[str, str] = field(default_factory=dict)
    path: str | None = None
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class Tend:
    """A request that changes what the provider keeps and is no effect: messages are taken from a queue, or deleted.

    operation: as that of an `Act`. payload: what is asked, as the dialect's `tend` reads it.
    """

    operation: str
    payload: Any


@dataclass(frozen=True, slots=True)
class Shown:
    """An effect as a dialect shows it. number: 1 is the provider's first. state: "done", "pending" or "failed".

    payload: JSON value. reference: the client reference or key it is found by, if any.
    """

    provider: str
    number: int
    operation: str
    payload: Any
    state: str = "done"
    reference: str | None = None


class Dialect:
    """The plain dialect: JSON in, JSON out, any path. Presets override what their provider does otherwise.

    A dialect has no state; one object serves all requests. source: addresses of the provider's documents that it
    follows. not_modelled: what of the provider it does not play, in one sentence.
    """

    source: str = ""
    not_modelled: str = ""

    def understand(self, contract: Contract, request: Request) -> Act | Ask | Tend | Refusal:
        """What a request wants; a Refusal for one that never reaches the idempotency layer."""
        if request.method in ASKING_METHODS and contract.lookup != "none":
            return Ask(path=request.path)
        if request.method not in ACTING_METHODS:
            return method_refused(contract, request)
        payload = read_payload(request)
        if isinstance(payload, Refusal):
            return payload
        if request.query:
            named = payload if isinstance(payload, dict) else {} if payload is None else {"body": payload}
            payload = {**named, "?": form_of(request.query)}
        return Act(
            f"{request.method} {request.path}",
            payload,
            request.headers.get(contract.key_header.lower()),
            precondition_of(request),
            account=request.account,
            region=request.region,
            session=request.headers.get("once-session", ""),
        )

    def forbids(self, contract: Contract, act: Act, done: Callable[[], Sequence[Shown]]) -> Refusal | None:
        """Why what was done before rules a new request out, whatever its key: "this charge is refunded already".

        None where nothing does. done: reads the provider's effects, the oldest first; it costs as much as there are.
        Kept like a refusal of the business, as the contract's stored_outcomes says.
        """
        return None

    def document(self, contract: Contract, shown: Shown) -> dict[str, Any]:
        """The body that shows an effect in look-ups, and in the answer to its request."""
        document = {
            "id": f"{shown.provider}_{shown.number}",
            "object": "receipt",
            "provider": shown.provider,
            "operation": shown.operation,
            "payload": shown.payload,
        }
        return document if contract.acceptance == "sync" else {**document, "status": shown.state}

    def answer(self, contract: Contract, shown: Shown) -> dict[str, Any]:
        """The body that answers the request for an effect, where that is not its `document`."""
        return self.document(contract, shown)

    def tend(self, contract: Contract, connection: sqlite3.Connection, provider: str, tend: Tend) -> Reply:
        """Answer a request that is no effect, inside a transaction; only for a dialect that understands some so."""
        raise NotImplementedError(f"{type(self).__name__} understands {tend.operation!r} as a Tend, and has no tend()")

    def identifier(self, contract: Contract, shown: Shown) -> str:
        """The id under which `document` shows an effect, for look-ups."""
        return str(self.document(contract, shown).get("id", f"{shown.provider}_{shown.number}"))

    def status(self, contract: Contract, shown: Shown) -> int:
        """The HTTP status that answers the request for an effect."""
        return 202 if contract.acceptance == "async202" and shown.state == "pending" else 200

    def listing(self, contract: Contract, documents: list[dict[str, Any]], ask: Ask) -> dict[str, Any]:
        """The body that lists effects."""
        return {"object": "list", "data": documents}

    def acknowledgement(self, contract: Contract, shown: Shown) -> dict[str, Any]:
        """The body that says a repetition was received, and not what it repeated."""
        return {"object": "acknowledgement", "accepted": True}

    def event(self, contract: Contract, shown: Shown) -> tuple[str, dict[str, Any]]:
        """Kind and body of the webhook that tells what became of an effect; the body's "id" is added."""
        kind = f"receipt.{shown.state}"
        return kind, {"type": kind, "data": self.document(contract, shown)}

    def refusal(self, contract: Contract, refusal: Refusal) -> tuple[int, dict[str, Any]]:
        """HTTP status and body of a refusal."""
        return refusal.status, error_document(
            _PLAIN_KINDS.get(refusal.kind, refusal.kind), refusal.message, refusal.param
        )

    # -- examples, for those who test a fake or a real sandbox ------------------------------------------

    def example(self, contract: Contract, key: str | None, variant: int = 0) -> Request:
        """A valid acting request whose identity, as the contract looks at it, is `key` (None: it has none).

        variant: another number makes another payload, which asks for something else. Its client reference is `key`.
        """
        payload: dict[str, Any] = {"amount": 100 + variant}
        headers = {"content-type": "application/json"}
        if contract.fence_field is not None:
            payload[contract.fence_field] = 1
        if key is not None:
            payload[contract.reference_field] = key
            match contract.dedup:
                case "client_key" if contract.key_field is not None:
                    payload[contract.key_field] = key
                case "client_key":
                    headers[contract.key_header.lower()] = key
                case "natural_key":
                    payload[str(contract.natural_key_field)] = key
                case "session_sequence":
                    payload |= {str(contract.session_field): key, str(contract.sequence_field): 0}
                case "conditional":
                    payload[str(contract.version_field)] = "0"
                case _:
                    pass
        body = json.dumps(payload).encode("ascii")
        if contract.dedup == "conditional" and key is not None:
            return Request("PUT", f"/v1/refunds/{key}", "", headers, body)
        return Request("POST", "/v1/refunds", "", headers, body)

    def example_lookup(self, contract: Contract, reference: str | None) -> Request:
        """A look-up of what `example` asked for: one by its id or reference, None for the list."""
        path = "/v1/refunds" if reference is None else f"/v1/refunds/{reference}"
        return Request("GET", path, "", {}, b"")

    def encode(self, body: dict[str, Any]) -> tuple[str, bytes]:
        """Content type and bytes of a body; the same bytes for equal bodies."""
        return "application/json", json.dumps(body, sort_keys=True).encode("ascii")

    def reply(
        self,
        status: int,
        body: dict[str, Any],
        outcome: str,
        *,
        headers: Mapping[str, str] | None = None,
        arrival: int | None = None,
    ) -> Reply:
        """A reply in this dialect."""
        kind, encoded = self.encode(body)
        return Reply(status, {"content-type": kind, **(headers or {})}, body, outcome, arrival, encoded)

    def refuse(self, contract: Contract, refusal: Refusal) -> Reply:
        """The reply that turns a request away without a trace in the ledger."""
        status, body = self.refusal(contract, refusal)
        return self.reply(status, body, "refused", headers=dict(refusal.headers))


PLAIN = Dialect()

_PLAIN_KINDS = {
    "key_missing": "idempotency_key_missing",
    "key_too_long": "idempotency_key_too_long",
    "key_unusable": "idempotency_key_unusable",
    "mismatch": "idempotency_mismatch",
    "concurrent": "idempotency_key_in_use",
    "natural_conflict": "already_exists",
    "content_repeated": "duplicate_request",
    "failed": "api_error",
    "unavailable": "service_unavailable",
    "malformed": "malformed_body",
    "too_large": "request_too_large",
}


@lru_cache(maxsize=64)
def dialect_of(contract: Contract) -> Dialect:
    """The dialect that a contract names. Raises ValueError if there is no such thing."""
    if not contract.dialect:
        return PLAIN
    module, _, attribute = contract.dialect.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"contract {contract.name!r} names the dialect {contract.dialect!r}, which is not there ({error}); give"
            ' "module:attribute", the attribute being an object of a once_fakes.dialect.Dialect'
        ) from error
    if not isinstance(found, Dialect):
        raise ValueError(f"{contract.dialect!r} is no object of a once_fakes.dialect.Dialect but {found!r}")
    return found


def read_payload(request: Request) -> Any:
    """The body as its content type says: JSON, form fields, text; None if there is none. A Refusal if it cannot be."""
    try:
        payload = payload_of(request.headers.get("content-type", ""), request.body)
        canonical_payload(payload)
    except (ValueError, RecursionError) as error:
        return Refusal("malformed", 400, f"the body cannot be read as its content type says: {error}")
    return payload


def method_refused(contract: Contract, request: Request) -> Refusal:
    """405 for a method that this address does not answer."""
    allowed = ACTING_METHODS if contract.lookup == "none" else (*ASKING_METHODS, *ACTING_METHODS)
    why = ": this contract has no look-up" if request.method in ASKING_METHODS else ""
    message = f"{request.method} is not answered here{why}"
    return Refusal("method_not_allowed", 405, message, headers=(("allow", ", ".join(allowed)),))


def precondition_of(request: Request) -> str | None:
    """The version that If-Match or If-None-Match asks for."""
    if request.headers.get("if-none-match") == "*":
        return ""
    matched = request.headers.get("if-match")
    return None if matched is None else matched.strip().removeprefix("W/").strip('"')
