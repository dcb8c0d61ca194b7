"""A fake provider: the contract engine, and two of its transports (plain calls, httpx in process).

The engine is one transaction over the ledger: the arrival, the receipt it finds, the effect and its receipt
commit together or not at all.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from once_fakes.contract import Contract
from pytest_once.boundaries import GO, announce, register_endpoint
from pytest_once.calls import perform
from pytest_once.faults import ERROR_AFTER, ERROR_BEFORE, HTTP_FAULTS, KINDS, LATE, LATE_COPY, LATE_FAULTS
from pytest_once.ledger import (
    BETWEEN_LIVES,
    Ledger,
    Receipt,
    canonical_payload,
    effect_count,
    find_provider,
    find_receipt,
    insert_arrival,
    insert_effect,
    store_receipt,
    take_held,
)

if TYPE_CHECKING:
    import httpx
    import respx

MAX_KEY_LENGTH = 255
"""Longest idempotency key, in characters."""
MAX_BODY_BYTES = 1024 * 1024
"""Largest request body that is read."""
ARRIVAL_HEADER = "once-arrival"
"""Response header with the arrival's id in the ledger."""

_ACTING_METHODS = ("POST", "PUT", "PATCH", "DELETE")


@dataclass(frozen=True, slots=True)
class Reply:
    """A provider's answer.

    status: HTTP status; outcome: executed, replayed or refused; arrival_id: the arrival in the ledger, None
    when the request was turned away before the contract looked at it.
    """

    status: int
    headers: Mapping[str, str]
    body: dict[str, Any]
    outcome: str
    arrival_id: int | None = None

    def raise_for_status(self) -> Reply:
        """This reply, unless its status is an error. Raises ProviderError then: the effect may have happened or not."""
        if self.status >= 400:
            raise ProviderError(self)
        return self

    @property
    def content(self) -> bytes:
        """The body as a transport sends it; the same bytes for a reply and its replay."""
        return json.dumps(self.body, sort_keys=True).encode("ascii")


class ProviderError(Exception):
    """A reply with an error status; `reply` holds it."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(f"status {reply.status}: {reply.body.get('error', {}).get('message', '')}")
        self.reply = reply


@dataclass(slots=True)
class _Answer:
    """What the contract decides, before it is written down."""

    outcome: str
    status: int
    body: dict[str, Any] = field(default_factory=dict)


def arrive(ledger: Ledger, provider: str, operation: str, payload: str, key: str | None) -> Reply:
    """Let one request reach the provider and answer as its contract says.

    payload: canonical JSON; key: the client's idempotency key, None or empty if it sent none. Raises
    LookupError if the ledger has no such provider.
    """
    with ledger.transaction() as connection:
        return _arrive(connection, provider, operation, payload, key)


def deliver(ledger: Ledger, number: int) -> Reply:
    """Let the number-th oldest request on its way (1 is the oldest) arrive now; the answer reaches nobody.

    For the controller, while no process of the test runs: the arrival belongs to no incarnation (BETWEEN_LIVES).
    Raises LookupError if not so many requests are on their way.
    """
    with ledger.transaction() as connection:
        held = take_held(connection, number)
        request = held.request
        if "payload" in request:
            return _arrive(connection, held.provider, held.operation, request["payload"], request["key"], BETWEEN_LIVES)
        contract = _contract_of(connection, held.provider)[0]
        understood = _understand(contract, request["method"], request["path"], request["headers"], request["body"])
        if isinstance(understood, Reply):
            return understood
        return _arrive(connection, held.provider, *understood, BETWEEN_LIVES)


def _contract_of(connection: sqlite3.Connection, provider: str) -> tuple[Contract, str | None]:
    """The provider's contract and the field of its logical key."""
    declared = find_provider(connection, provider)
    if declared is None:
        raise LookupError(f"no provider {provider!r} is declared in this ledger")
    return Contract.from_json(declared.contract), declared.key_field


def _arrive(
    connection: sqlite3.Connection,
    provider: str,
    operation: str,
    payload: str,
    key: str | None,
    incarnation: int | None = None,
) -> Reply:
    key = key or None
    contract, key_field = _contract_of(connection, provider)
    fingerprint = hashlib.sha256(f"{operation}\n{payload}".encode()).hexdigest()
    dedupes = contract.dedup == "client_key"
    receipt = find_receipt(connection, provider, key) if dedupes and key else None
    answer = _decide(contract, key, receipt, fingerprint)
    headers = {"content-type": "application/json"}
    if answer.outcome == "executed":
        value = json.loads(payload)
        answer.body = {
            "id": f"{provider}_{effect_count(connection, provider) + 1}",
            "object": "receipt",
            "provider": provider,
            "operation": operation,
            "payload": value,
        }
    elif answer.outcome == "replayed":
        headers[contract.replay_header.lower()] = "true"
    arrival = insert_arrival(
        connection,
        provider,
        operation,
        key=key,
        payload=payload,
        outcome=answer.outcome,
        status=answer.status,
        incarnation=incarnation,
    )
    if answer.outcome == "executed":
        logical_key = _logical_key(value, key_field)
        effect = insert_effect(connection, provider, operation, logical_key, payload, arrival)
        if dedupes and key:
            body = canonical_payload(answer.body)
            store_receipt(connection, Receipt(provider, key, fingerprint, answer.status, body, effect.id))
    headers[ARRIVAL_HEADER] = str(arrival)
    return Reply(answer.status, headers, answer.body, answer.outcome, arrival)


def _decide(contract: Contract, key: str | None, receipt: Receipt | None, fingerprint: str) -> _Answer:
    if contract.dedup == "none":
        return _Answer("executed", 200)
    if key is None:
        if contract.on_missing_key == "execute":
            return _Answer("executed", 200)
        message = f"this request needs the header {contract.key_header}"
        return _refusal(contract.missing_key_status, "idempotency_key_missing", message, contract.key_header)
    if len(key) > MAX_KEY_LENGTH:
        message = f"{contract.key_header} is longer than {MAX_KEY_LENGTH} characters"
        return _refusal(400, "idempotency_key_too_long", message, contract.key_header)
    if receipt is None:
        return _Answer("executed", 200)
    if receipt.fingerprint != fingerprint and contract.on_mismatch != "replay":
        if contract.on_mismatch == "execute":
            return _Answer("executed", 200)
        message = f"{contract.key_header} {key!r} was used before with another request"
        return _refusal(contract.mismatch_status, "idempotency_mismatch", message, contract.key_header)
    return _Answer("replayed", receipt.status, json.loads(receipt.body))


def _refusal(status: int, kind: str, message: str, param: str) -> _Answer:
    return _Answer("refused", status, error_document(kind, message, param))


def _logical_key(value: object, key_field: str | None) -> str | None:
    """What the payload says its intent is: the field of that name, or along a dotted path."""
    if key_field is None:
        return None
    found: object = value
    if isinstance(value, dict) and key_field in value:
        found = value[key_field]
    else:
        for part in key_field.split("."):
            found = found.get(part) if isinstance(found, dict) else None
    return found if found is None or isinstance(found, str) else canonical_payload(found)


def error_document(kind: str, message: str, param: str | None = None) -> dict[str, Any]:
    """The body of every error reply."""
    error = {"type": kind, "message": message}
    if param is not None:
        error["param"] = param
    return {"error": error}


def turn_away(status: int, kind: str, message: str, headers: Mapping[str, str] | None = None) -> Reply:
    """A refusal that never reaches the contract, so leaves no arrival."""
    sent = {"content-type": "application/json", **(headers or {})}
    return Reply(status, sent, error_document(kind, message), "refused")


def body_too_large() -> Reply:
    """The refusal of a body above MAX_BODY_BYTES."""
    return turn_away(413, "request_too_large", f"the body is larger than {MAX_BODY_BYTES} bytes")


def handle_http(
    ledger: Ledger,
    provider: str,
    contract: Contract,
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: bytes,
) -> Reply:
    """Answer an HTTP request to the provider; every transport ends here.

    path: below the provider's address, still percent-encoded. A query becomes the payload's field "?". Of the
    headers only the content type and the contract's key header are read; none is stored but the key.
    """
    understood = _understand(contract, method, path, headers, body)
    if isinstance(understood, Reply):
        return understood
    return arrive(ledger, provider, *understood)


def _understand(
    contract: Contract, method: str, path: str, headers: Mapping[str, str], body: bytes
) -> tuple[str, str, str | None] | Reply:
    """A request's operation, payload (canonical JSON) and key; or the reply that turns it away."""
    method = method.upper()
    if method not in _ACTING_METHODS:
        message = f"{method} is not answered here: this contract has no look-up"
        return turn_away(405, "method_not_allowed", message, {"allow": ", ".join(_ACTING_METHODS)})
    if len(body) > MAX_BODY_BYTES:
        return body_too_large()
    by_name = {name.lower(): value for name, value in headers.items()}
    path, _, query = path.partition("?")
    try:
        payload = _payload_of(by_name.get("content-type", ""), body)
        if query:
            named = payload if isinstance(payload, dict) else {} if payload is None else {"body": payload}
            payload = {**named, "?": _form(query)}
        canonical = canonical_payload(payload)
    except (ValueError, RecursionError) as error:
        return turn_away(400, "malformed_body", f"the body cannot be read as its content type says: {error}")
    return f"{method} {path or '/'}", canonical, by_name.get(contract.key_header.lower())


def _payload_of(content_type: str, body: bytes) -> object:
    media_type = content_type.partition(";")[0].strip().lower()
    if not body:
        return None
    if media_type == "application/json" or media_type.endswith("+json"):
        return json.loads(body, parse_constant=_no_such_constant)
    if media_type == "application/x-www-form-urlencoded":
        return _form(body.decode())
    if media_type.startswith("text/"):
        return {"text": body.decode()}
    return body


def _no_such_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _form(text: str) -> dict[str, str | list[str]]:
    values: dict[str, list[str]] = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        values.setdefault(name, []).append(value)
    return {name: found[0] if len(found) == 1 else found for name, found in values.items()}


class Provider:
    """A fake provider under its contract: over HTTP (`url`), for httpx in process (`router`), or by `call`.

    serve: starts the loopback server if need be and returns its base address. base_url: what `router` answers
    for. key_field: the payload's field (or dotted path) that is the logical key.

    Raises ValueError for a name that cannot be part of an address, or one declared with another contract.
    """

    def __init__(
        self,
        name: str,
        contract: Contract,
        ledger: Ledger,
        serve: Callable[[], str],
        base_url: str | None = None,
        key_field: str | None = None,
    ) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
            raise ValueError(
                f"a provider's name is a small letter, then small letters, digits, _ or -; {name!r} is not"
            )
        self.name = name
        self.contract = contract
        # An underscore may not stand in a host name.
        self.base_url = (base_url or f"https://{name.replace('_', '-')}.once.invalid").rstrip("/")
        self._ledger = ledger
        self._serve = serve
        ledger.record_provider(name, contract.to_json(), key_field, self.base_url)

    def __repr__(self) -> str:
        return f"Provider({self.name!r}, contract={self.contract.name!r})"

    def call(self, operation: str, payload: object, *, key: str | None = None) -> Reply:
        """Ask the provider to do something, without HTTP.

        A refusal is a Reply with a status of 400 or more. Raises ConnectionRefusedError, TimeoutError or
        ConnectionResetError where the controller ordered such a fault.
        """
        canonical = canonical_payload(payload)
        order = announce("call", f"{self.name} {operation}", provider=self.name, faults=HTTP_FAULTS + LATE_FAULTS)
        if order.fault in LATE_FAULTS:
            self._ledger.hold(self.name, operation, {"payload": canonical, "key": key})
        if order.fault == LATE:
            self._tell([], operation, TimeoutError.__name__)
            raise TimeoutError(KINDS[LATE].story)
        if order.fault == LATE_COPY:
            order = GO
        arrivals: list[int | None] = []
        broken: list[Exception] = []

        def deliver() -> Reply:
            try:
                reply = arrive(self._ledger, self.name, operation, canonical, key)
            except Exception as error:
                broken.append(error)
                raise
            arrivals.append(reply.arrival_id)
            return reply

        try:
            if order.fault in (ERROR_BEFORE, ERROR_AFTER):
                reply = self._failing(order.fault, deliver)
            else:
                reply = perform(order, deliver)
        except OSError as error:
            if broken:  # the ledger failed; that must not pass for the ordered fault
                raise broken[0] from None
            self._tell(arrivals, operation, type(error).__name__)
            raise
        if broken:
            raise broken[0]
        self._tell(arrivals, operation, str(reply.status))
        return reply

    @staticmethod
    def _failing(fault: str, deliver: Callable[[], Reply]) -> Reply:
        """An error status: 503 from in front of the provider, or 500 after it has acted."""
        if fault == ERROR_BEFORE:
            return turn_away(503, "service_unavailable", "The service is overloaded. Try again later.")
        deliver()
        return turn_away(500, "api_error", "An unexpected error occurred.")

    def _tell(self, arrivals: list[int | None], operation: str, what: str) -> None:
        self._ledger.record_told(arrivals[0] if arrivals else None, self.name, operation, what)

    @cached_property
    def url(self) -> str:
        """The provider's address on the loopback server, for any client and language."""
        address = f"{self._serve().rstrip('/')}/{self.name}"
        register_endpoint(address, self.name)
        return address

    @cached_property
    def router(self) -> respx.MockRouter:
        """A respx router answering httpx clients, sync and async, below `base_url`: `with provider.router:`.

        Raises ImportError if respx is not installed.
        """
        try:
            import respx
        except ImportError as error:
            raise ImportError(
                "Provider.router needs respx, which is not installed: install it (pip install respx),"
                " or point the client at Provider.url, which needs nothing in this process"
            ) from error
        router = respx.MockRouter(assert_all_called=False)
        # Not respx's base_url: its prefix match takes /v10 for /v1, and its patterns know a few methods only.
        router.route(url__regex=f"^{re.escape(self.base_url)}(?=[/?#]|$)").mock(side_effect=self._answer)
        register_endpoint(self.base_url, self.name)
        return router

    def _answer(self, request: httpx.Request) -> httpx.Response:
        import httpx

        base = httpx.URL(self.base_url).raw_path.decode("ascii").rstrip("/")
        path = request.url.raw_path.decode("ascii").removeprefix(base)
        reply = handle_http(
            self._ledger, self.name, self.contract, request.method, path, request.headers, request.content
        )
        return httpx.Response(reply.status, headers=dict(reply.headers), content=reply.content)
