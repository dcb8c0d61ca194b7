"""HTTP as a provider reads it: every transport ends here."""

from __future__ import annotations

from collections.abc import Mapping

from once_fakes.arriving import Between, arrive
from once_fakes.contract import Contract
from once_fakes.dialect import ASKING_METHODS, Act, Ask, Request, Tend, dialect_of
from once_fakes.instructions import Instructions, Undecided
from once_fakes.looking import answer
from once_fakes.reply import Refusal, Reply, turn_away
from pytest_once.boundaries import ORDER_HEADER, UNDECIDED_HEADER
from pytest_once.ledger import Ledger

MAX_BODY_BYTES = 1024 * 1024
"""Largest request body that is read."""


def handle_http(
    ledger: Ledger,
    provider: str,
    contract: Contract,
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: bytes,
    between: Between | None = None,
) -> Reply:
    """Answer an HTTP request to the provider.

    path: below the provider's address, still percent-encoded, with its query. Of the headers only those are read that
    the contract's dialect knows, and ORDER_HEADER; none is stored but the key. between: see `arrive`.
    """
    by_name = {name.lower(): value for name, value in headers.items()}
    instructions = Instructions.read(by_name.get(ORDER_HEADER, ""))
    understood = understand(contract, method, path, by_name, body)
    if isinstance(understood, Reply):
        return understood
    if isinstance(understood, Ask):
        return answer(ledger, provider, understood, instructions.stale)
    if isinstance(understood, Tend):
        with ledger.transaction() as connection:
            return dialect_of(contract).tend(contract, connection, provider, understood)
    try:
        if between is None:
            return arrive(ledger, provider, understood, instructions)
        return arrive(ledger, provider, understood, instructions, between)
    except Undecided as undecided:
        # Nobody sees this answer: a seam asks the controller, and sends the request again with what was decided.
        asked = f"{undecided.parameter}={'|'.join(undecided.options)}"
        return turn_away(300, "undecided", str(undecided), {UNDECIDED_HEADER: asked})


def understand(
    contract: Contract, method: str, path: str, headers: Mapping[str, str], body: bytes
) -> Act | Ask | Tend | Reply:
    """What a request wants of its provider, or the reply that turns it away. headers: names in small letters."""
    dialect = dialect_of(contract)
    method = method.upper()
    if len(body) > MAX_BODY_BYTES:
        return body_too_large(contract)
    path, _, query = path.partition("?")
    request = Request(method, path or "/", query, headers, b"" if method in ASKING_METHODS else body)
    understood = dialect.understand(contract, request)
    return dialect.refuse(contract, understood) if isinstance(understood, Refusal) else understood


def body_too_large(contract: Contract) -> Reply:
    """The refusal of a body above MAX_BODY_BYTES, in the words of a contract's dialect."""
    refusal = Refusal("too_large", 413, f"the body is larger than {MAX_BODY_BYTES} bytes")
    return dialect_of(contract).refuse(contract, refusal)
