"""A preset asked over the wire format, without a socket."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from once_fakes import Reply, contract_named
from once_fakes.dialect import Request, dialect_of
from once_fakes.wire import handle_http
from pytest_once.clock import EPOCH_S
from pytest_once.ledger import Ledger


class Wired:
    """A named contract on a ledger, whose time stands until it is moved. headers: sent with every request."""

    def __init__(self, ledger: Ledger, name: str, headers: Mapping[str, str]) -> None:
        self.contract = contract_named(name)
        self.dialect = dialect_of(self.contract)
        self.ledger = ledger
        self._headers = dict(headers)
        self._now_s = EPOCH_S
        ledger.record_provider(name, self.contract.to_json(), None, None)

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Reply:
        """headers: by name, with _ for -; an empty text leaves one out."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {name: value for name, value in {**self._headers, **named}.items() if value}
        return handle_http(self.ledger, self.contract.name, self.contract, method, path, sent, body)

    def json(self, path: str, value: Any, **headers: str) -> Reply:
        return self.ask("POST", path, json.dumps(value).encode(), **{"content_type": "application/json", **headers})

    def form(self, path: str, fields: Mapping[str, str]) -> Reply:
        body = urlencode(fields).encode()
        return self.ask("POST", path, body, content_type="application/x-www-form-urlencoded")

    def send(self, request: Request) -> Reply:
        """One of the dialect's examples."""
        path = f"{request.path}?{request.query}" if request.query else request.path
        return handle_http(
            self.ledger, self.contract.name, self.contract, request.method, path, request.headers, request.body
        )

    def example(self, key: str | None, variant: int = 0) -> Reply:
        return self.send(self.dialect.example(self.contract, key, variant))

    def pass_time(self, seconds: float) -> None:
        self._now_s += seconds
        self.ledger.set_now(self._now_s)

    @property
    def effects(self) -> int:
        return len(self.ledger.effects())
