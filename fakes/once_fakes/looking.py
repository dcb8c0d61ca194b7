"""Somebody asks the provider what it did: what the contract lets them see. Nothing is written but the answer."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote

from once_fakes.arriving import contract_of
from once_fakes.reply import Reply, effect_document, turn_away
from pytest_once.ledger import Effect, Ledger, effects_of, now_within

_VERSION_PREFIXES = ("api", "rest", "v")


class _Shown:
    """A provider's effects as look-ups show them now; stale: from before its latest effect."""

    def __init__(self, ledger: Ledger, provider: str, stale: bool) -> None:
        with ledger.transaction() as connection:
            self.contract = contract_of(connection, provider)[0]
            effects = effects_of(connection, provider)
            now_s = now_within(connection)
        self._provider = provider
        self.effects = [
            (number, effect)
            for number, effect in enumerate(effects[:-1] if stale else effects, 1)
            if effect.visible_s is None or effect.visible_s <= now_s
        ]

    def document(self, number: int, effect: Effect) -> dict[str, Any]:
        return effect_document(self._provider, number, effect.operation, json.loads(effect.payload))

    def all(self, path: str | None = None) -> Reply:
        found = [self.document(*one) for one in self.effects if path is None or _place(one[1]) == path]
        return _answer(200, {"object": "list", "data": found}, "found")

    def one(self, reference: str, path: str | None = None) -> Reply:
        for number, effect in self.effects:
            if path is not None and _place(effect) != path:
                continue
            document = self.document(number, effect)
            if reference in (document["id"], effect.reference):
                return _answer(200, document, "found")
        missing = turn_away(404, "not_found", f"nothing is known of {reference!r}")
        return _answer(404, missing.body, "not_found")


def list_effects(ledger: Ledger, provider: str, stale: bool = False) -> Reply:
    """All the provider's effects, the oldest first. Raises LookupError if its contract has no look-up."""
    shown = _Shown(ledger, provider, stale)
    if shown.contract.lookup == "none":
        raise LookupError(_no_lookup(provider, "be asked what it did", "list_only"))
    return shown.all()


def find_effect(ledger: Ledger, provider: str, reference: str, stale: bool = False) -> Reply:
    """The provider's oldest effect of that id or reference, or a 404. Raises LookupError if its contract cannot."""
    shown = _Shown(ledger, provider, stale)
    if shown.contract.lookup in ("none", "list_only"):
        raise LookupError(_no_lookup(provider, "be asked for one effect", "by_client_ref"))
    return shown.one(reference)


def _no_lookup(provider: str, what: str, lookup: str) -> str:
    return (
        f"{provider!r} cannot {what}: its contract does not promise it. If the real provider can, declare the fake with"
        f" a contract that says so: Contract(name=..., lookup={lookup!r})"
    )


def answer_get(ledger: Ledger, provider: str, path: str, stale: bool) -> Reply:
    """What GET answers: /<collection> is the list of what was asked for there, /<collection>/<reference> one of it.

    path: without query, percent-encoded. Where it is not known from what is shown, a path is taken for a collection if
    it has an odd number of parts, an API version in front not counted ("/v1/refunds", "/customers/c1/refunds").
    """
    shown = _Shown(ledger, provider, stale)
    path = path.rstrip("/") or "/"
    collection, _, reference = path.rpartition("/")
    places = {_place(effect) for _, effect in shown.effects}
    if path in places or (collection not in places and _is_collection(path)):
        return shown.all(path)
    if shown.contract.lookup == "list_only":
        return turn_away(405, "method_not_allowed", "this contract answers with lists only, not for one effect")
    return shown.one(unquote(reference), collection or "/")


def _place(effect: Effect) -> str:
    """The path that an effect was asked for at."""
    return effect.operation.partition(" ")[2].rstrip("/") or "/"


def _is_collection(path: str) -> bool:
    parts = path.strip("/").split("/")
    while len(parts) > 1 and parts[0].rstrip("0123456789.") in _VERSION_PREFIXES:
        parts = parts[1:]
    return len(parts) % 2 == 1


def _answer(status: int, body: dict[str, Any], outcome: str) -> Reply:
    return Reply(status, {"content-type": "application/json"}, body, outcome)
