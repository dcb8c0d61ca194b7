"""What the tests of the presets have in common: requests as bytes, and bad ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from hypothesis import strategies as st

from once_fakes import Contract, Provider, Reply
from once_fakes.dialect import Request, dialect_of
from once_fakes.wire import handle_http
from pytest_once.ledger import Ledger


class Wire:
    """A provider under a contract, spoken to over HTTP without a socket."""

    def __init__(self, ledger: Ledger, contract: Contract) -> None:
        self.ledger = ledger
        self.provider = Provider("pay", contract, ledger, str)
        self.contract = contract
        self.dialect = dialect_of(contract)

    def send(
        self, method: str, path: str, body: object = b"", headers: Mapping[str, str] | None = None, **more: str
    ) -> Reply:
        """body: bytes as they are, another value as JSON. more: headers, with _ for -."""
        named = {name.replace("_", "-"): value for name, value in more.items()}
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return handle_http(self.ledger, "pay", self.contract, method, path, {**(headers or {}), **named}, content)

    def example(self, key: str | None, variant: int = 0, **more: str) -> Reply:
        """Its dialect's example."""
        return self.again(self.dialect.example(self.contract, key, variant), **more)

    def again(self, request: Request, **more: str) -> Reply:
        path = f"{request.path}?{request.query}" if request.query else request.path
        return self.send(request.method, path, request.body, request.headers, **more)

    @property
    def outcomes(self) -> list[str]:
        return [arrival.outcome for arrival in self.ledger.arrivals()]

    @property
    def effects(self) -> int:
        return len(self.ledger.effects())


def form(**fields: Any) -> bytes:
    return urlencode(fields).encode()


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def mutated(request: Request) -> st.SearchStrategy[bytes]:
    """Bodies near a good one: each of its JSON fields replaced by any value, and bytes that are no JSON."""
    given = json.loads(request.body) if request.body.startswith(b"{") else {}
    near = st.fixed_dictionaries({}, optional=dict.fromkeys(given, JSON_VALUES)).map(
        lambda other: json.dumps({**given, **other}).encode()
    )
    return st.one_of(near, JSON_VALUES.map(lambda value: json.dumps(value).encode()), st.binary(max_size=60))
