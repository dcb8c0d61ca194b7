"""Somebody asks the provider what it did: what the contract lets them see. Nothing is written but the answer."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from urllib.parse import unquote

from once_fakes.arriving import contract_of
from once_fakes.dialect import Ask, Shown, dialect_of
from once_fakes.reading import field_text
from once_fakes.reply import Refusal, Reply
from once_fakes.settling import settle_due, shown_effect
from pytest_once.ledger import Ledger
from pytest_once.ledger.within import effects_of, now_within

_VERSION_PREFIXES = ("api", "rest", "v")


class _Seen:
    """A provider's effects as look-ups show them now; stale: from before its latest effect. at_once: see `Ask`."""

    def __init__(self, ledger: Ledger, provider: str, stale: bool, at_once: bool = False) -> None:
        with ledger.transaction() as connection:
            self.contract = contract_of(connection, provider)[0]
            self._dialect = dialect_of(self.contract)
            visible = self._visible(connection, provider, stale, at_once)
            # What its dialect gives one name are versions of one object: the latest is what it is now.
            self.effects = list({self._dialect.identifier(self.contract, shown): shown for shown in visible}.values())

    def _visible(self, connection: sqlite3.Connection, provider: str, stale: bool, at_once: bool) -> Iterator[Shown]:
        now_s = now_within(connection)
        if self.contract.keeps_time:
            settle_due(connection, provider, self.contract, now_s)
        effects = effects_of(connection, provider)
        for effect in effects[:-1] if stale else effects:
            # What is accepted can be polled; what was begun and answered to nobody is not there yet.
            known = effect.state == "done" or self.contract.acceptance == "async202"
            if known and (at_once or effect.visible_s is None or effect.visible_s <= now_s):
                yield shown_effect(effect)

    def all(self, ask: Ask) -> Reply:
        found = [
            self._dialect.document(self.contract, shown)
            for shown in self.effects
            if _is_at(shown, ask) and all(field_text(shown.payload, name) == text for name, text in ask.where.items())
        ]
        return self._dialect.reply(200, self._dialect.listing(self.contract, found, ask), "found")

    def one(self, ask: Ask) -> Reply:
        for shown in self.effects:
            names = self._dialect.identifier(self.contract, shown), shown.reference
            if ask.reference in names and _is_at(shown, ask):
                return self._dialect.reply(200, self._dialect.document(self.contract, shown), "found")
        refusal = Refusal("not_found", 404, f"nothing is known of {ask.reference!r}", value=ask.reference)
        status, body = self._dialect.refusal(self.contract, refusal)
        return self._dialect.reply(status, body, "not_found")

    def at(self, path: str) -> Reply:
        path = path.rstrip("/") or "/"
        collection, _, reference = path.rpartition("/")
        places = {_place(shown) for shown in self.effects}
        if path in places or (collection not in places and _is_collection(path)):
            return self.all(Ask(path=path))
        if self.contract.lookup == "list_only":
            message = "this contract answers with lists only, not for one effect"
            return self._dialect.refuse(self.contract, Refusal("method_not_allowed", 405, message))
        return self.one(Ask(reference=unquote(reference), path=collection or "/"))


def list_effects(ledger: Ledger, provider: str, stale: bool = False) -> Reply:
    """All the provider's effects, the oldest first. Raises LookupError if its contract has no look-up."""
    seen = _Seen(ledger, provider, stale)
    if seen.contract.lookup == "none":
        raise LookupError(_no_lookup(provider, "be asked what it did", "list_only"))
    return seen.all(Ask())


def find_effect(ledger: Ledger, provider: str, reference: str, stale: bool = False) -> Reply:
    """The provider's oldest effect of that id or reference, or a 404. Raises LookupError if its contract cannot."""
    seen = _Seen(ledger, provider, stale)
    if seen.contract.lookup in ("none", "list_only"):
        raise LookupError(_no_lookup(provider, "be asked for one effect", "by_client_ref"))
    return seen.one(Ask(reference=reference))


def answer(ledger: Ledger, provider: str, ask: Ask, stale: bool) -> Reply:
    """What a look-up over HTTP is answered.

    Where only a path is known, /<collection> is the list of what was asked for there, /<collection>/<reference> one
    of it. Where what is shown does not tell, a path is taken for a collection if it has an odd number of parts, an API
    version in front not counted ("/v1/refunds", "/customers/c1/refunds").
    """
    seen = _Seen(ledger, provider, stale, ask.at_once)
    if ask.path is not None:
        return seen.at(ask.path)
    return seen.all(ask) if ask.reference is None else seen.one(ask)


def _no_lookup(provider: str, what: str, lookup: str) -> str:
    return (
        f"{provider!r} cannot {what}: its contract does not promise it. If the real provider can, declare the fake with"
        f" a contract that says so: Contract(name=..., lookup={lookup!r})"
    )


def _is_at(shown: Shown, ask: Ask) -> bool:
    if ask.path is not None:
        return _place(shown) == ask.path
    return ask.place is None or shown.operation == ask.place


def _place(shown: Shown) -> str:
    """The path that an effect was asked for at."""
    return shown.operation.partition(" ")[2].rstrip("/") or "/"


def _is_collection(path: str) -> bool:
    parts = path.strip("/").split("/")
    while len(parts) > 1 and parts[0].rstrip("0123456789.") in _VERSION_PREFIXES:
        parts = parts[1:]
    return len(parts) % 2 == 1
