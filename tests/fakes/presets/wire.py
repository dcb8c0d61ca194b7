"""A provider on the wire, without a wire: requests in, replies as a client reads them out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from once_fakes import Contract, Reply
from once_fakes.dialect import Request, dialect_of
from once_fakes.wire import handle_http
from pytest_once.ledger import Ledger


class Wire:
    """Requests to a provider "p" of that contract. `send` takes headers besides `headers`."""

    def __init__(self, ledger: Ledger, contract: Contract, key_field: str | None = None) -> None:
        ledger.record_provider("p", contract.to_json(), key_field, None)
        self.ledger = ledger
        self.contract = contract
        self.headers: dict[str, str] = {}

    def send(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Reply:
        """body: bytes as they are, another value as JSON."""
        sent = {"content-type": "application/json", **self.headers, **(headers or {})}
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        return handle_http(self.ledger, "p", self.contract, method, path, sent, content)

    def request(self, request: Request) -> Reply:
        """As the dialect's examples are."""
        path = f"{request.path}?{request.query}" if request.query else request.path
        return self.send(request.method, path, request.body or None, request.headers)

    def example(self, key: str | None, variant: int = 0) -> Reply:
        return self.request(dialect_of(self.contract).example(self.contract, key, variant))

    def lookup(self, reference: str | None) -> Reply:
        return self.request(dialect_of(self.contract).example_lookup(self.contract, reference))

    @property
    def outcomes(self) -> list[str]:
        return [arrival.outcome for arrival in self.ledger.arrivals()]


def shown(reply: Reply) -> Any:
    """The body as a client decodes it."""
    return json.loads(reply.content)
