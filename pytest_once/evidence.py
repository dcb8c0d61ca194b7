"""What a picture proves: effects by logical key, promises of the contracts, and the state's digest."""

from __future__ import annotations

import collections
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pytest_once.canonical import Form, Naming, Row, digest, masked_text, occurring
from pytest_once.checks import Counts, LogicalKey, Mask, Oracle
from pytest_once.faults import ARRIVES, Delivery
from pytest_once.ledger import Arrival, Counter, Declared, Effect, Event, Held, Intent, LedgerSnapshot
from pytest_once.life import Sight
from pytest_once.report import LedgerRows
from pytest_once.scenario import ScenarioError
from pytest_once.stores.directory import DirectorySnapshot
from pytest_once.stores.ledger import LedgerPicture
from pytest_once.stores.sqlite import query
from pytest_once.world import Recent, World

_KEPT = 256

_TOLD = ("ledger/effects", "ledger/receipts")
"""What of a provider those can find out who may ask it; its webhooks tell everybody."""


@dataclass(frozen=True, slots=True)
class _Facts:
    """What one ledger file says; read once for all the pictures that hold the same file. begun: all effects.

    deduplicating: names of the providers whose contract recognises a repeated key. answering: of those that can be
    asked what they did. open_ended: of those whose contract leaves open what happens.
    """

    begun: tuple[Effect, ...]
    arrivals: tuple[Arrival, ...]
    counters: tuple[Counter, ...]
    intents: tuple[Intent, ...]
    providers: tuple[Declared, ...]
    deduplicating: frozenset[str]
    in_flight: tuple[Held, ...]
    answering: frozenset[str]
    open_ended: frozenset[str]
    yielding: frozenset[str]


class Evidence:
    """Reads pictures of one world. oracle: what the effects should be; set once the recording runs are done.

    forgetful: who acts anew on every request (providers whose contract recognises no repeated one, counted tools).
    answering: providers that can be asked what they have done. yielding: providers whose contract ends the life of a
    request on its way, or lets a token fence it off, so that waiting or fencing may decide what asking cannot.
    """

    oracle: Oracle
    forgetful: frozenset[str] = frozenset()
    answering: frozenset[str] = frozenset()
    yielding: frozenset[str] = frozenset()

    def __init__(self, world: World, naming: Naming) -> None:
        self.naming = naming
        self._world = world
        self._facts: Recent[bytes, _Facts] = Recent(_KEPT)
        self._possible: Recent[tuple[bytes, int, float], tuple[str, ...]] = Recent(_KEPT)
        self._places: dict[str, tuple[str, str]] = {}
        self._relied: collections.defaultdict[str, set[str]] = collections.defaultdict(set)
        self._tables: Recent[tuple[Counter, tuple[bytes, ...]], tuple[Effect, ...]] = Recent(_KEPT)

    def digest(self, sight: Sight) -> str:
        """The state that a sight shows."""
        return self._world.digest(sight.picture, self._named(sight.tokens), sight.now_s)

    def view(self, sight: Sight) -> str:
        """Digest of what a process that starts there can find out: what is stored, and what providers answer.

        "" where every provider recognises repeated requests, so that nobody needs to find out.
        """
        if not self.forgetful:
            return ""
        rows = [
            row
            for row in self._world.rows(sight.picture)
            if not row.place.startswith("ledger/")
            or row.place == "ledger/memory"
            or (row.place in _TOLD and row.cells[0] in self.answering)
            or row.place == "ledger/events"
        ]
        return digest(Form(rows, self._named(sight.tokens)).render(sight.now_s))

    def learn_providers(self, last: Sight) -> None:
        """Note who is who, from the end of a fault-free life."""
        facts = self._ledger(last)
        known = {one.name for one in facts.providers}
        tools = {effect.provider for effect in facts.begun} - known
        self.forgetful = frozenset(tools | (known - facts.deduplicating))
        self.answering = facts.answering
        self.yielding = facts.yielding

    def instants(self, sight: Sight) -> list[float]:
        """Stored instants of virtual time, in epoch seconds, ascending."""
        return self._world.instants(sight.picture, self._named(sight.tokens))

    def occurring(self, sight: Sight) -> frozenset[str]:
        """Those of the random texts that are still somewhere in the world, or in what reached a provider."""
        arrived = self._ledger(sight).arrivals
        asked = [Row("arrivals", ("operation", "key", "payload"), (a.operation, a.key, a.payload)) for a in arrived]
        return self._world.occurring(sight.picture, sight.tokens) | occurring(asked, sight.tokens)

    def mask(self, tokens: frozenset[str]) -> Mask:
        """Replaces random texts and times in a text by fixed signs."""
        return partial(masked_text, naming=self._named(tokens))

    def counts(self, sight: Sight) -> Counts:
        """Effects so far, by logical key."""
        return self.oracle.count(self._in_state(sight, "done"), self.mask(sight.tokens))

    def expected(self, sight: Sight) -> Counts:
        """Effects so far, and those that will follow unless they fail: what providers have accepted, or are doing."""
        return self.oracle.count(self.effects(sight), self.mask(sight.tokens))

    def effects(self, sight: Sight) -> tuple[Effect, ...]:
        """All effects so far, also accepted ones: the ledger's, then those of counted tables."""
        return self._in_state(sight, "done", "pending")

    def _in_state(self, sight: Sight, *states: str) -> tuple[Effect, ...]:
        facts = self._ledger(sight)
        counted = (effect for counter in facts.counters for effect in self._counted(counter, sight))
        return (*(effect for effect in facts.begun if effect.state in states), *counted)

    def rows(self, sight: Sight) -> LedgerRows:
        """The ledger for a person to read, with the effects of counted tables."""
        facts = self._ledger(sight)
        snapshot = LedgerSnapshot(self._picture(sight).data)
        counted = (effect for counter in facts.counters for effect in self._counted(counter, sight))
        return LedgerRows(facts.providers, facts.arrivals, (*snapshot.begun(), *counted), tuple(snapshot.told()))

    def swallowed(self, sight: Sight) -> LogicalKey | None:
        """An intent that was taken for another, because it came under the same key with another payload.

        A key is another one in another scope, and free again once its promised retention is over, or its request has
        failed without a receipt.
        """
        ledger, mask = self._ledger(sight), self.mask(sight.tokens)
        holders: dict[tuple[str, str, str], LogicalKey] = {}
        for arrival in ledger.arrivals if ledger.deduplicating else ():
            if arrival.key is None or arrival.provider not in ledger.deduplicating or arrival.outcome == "refused":
                continue
            asked = self.oracle.request(arrival, mask)
            key = arrival.provider, arrival.scope, arrival.key
            relied = arrival.relied.split(",")
            repeated = arrival.outcome == "replayed" or "on_mismatch" in relied
            if repeated and "retention_s" not in relied and holders.get(key, asked) != asked:
                return asked
            if arrival.outcome != "replayed":
                holders[key] = asked
        return None

    def in_flight(self, sight: Sight) -> tuple[str, ...]:
        """The providers of the requests that are on their way, and of the work that was accepted, oldest first."""
        return tuple(held.provider for held in self._ledger(sight).in_flight)

    def requests(self, sight: Sight) -> int:
        """How many requests are on their way."""
        return sum(held.completes is None for held in self._ledger(sight).in_flight)

    def deliveries(self, sight: Sight, now_s: float) -> list[Delivery]:
        """What may arrive, of equal requests on their way only the oldest, or end, and each way it may then go.

        now_s: virtual time of the arrival, in epoch seconds.
        """
        held = self._ledger(sight).in_flight
        asked = [(one.provider, one.operation, one.key, one.payload, one.completes is not None) for one in held]
        distinct = [number for number, what in enumerate(asked, 1) if what not in asked[: number - 1]]
        return [
            Delivery(number, way)
            for number in distinct
            for way in range(len(self._ways(sight, held[number - 1], number, now_s)))
        ]

    def failures(self, sight: Sight) -> int:
        """How often accepted work has failed."""
        return sum(effect.state == "failed" for effect in self._ledger(sight).begun)

    def is_completion(self, sight: Sight, delivery: Delivery) -> bool:
        """Whether a delivery is the end of accepted work, good or bad."""
        return self._ledger(sight).in_flight[delivery.number - 1].completes is not None

    def is_failure(self, sight: Sight, delivery: Delivery) -> bool:
        """Whether accepted work fails by a delivery."""
        return delivery.way > 0 and self.is_completion(sight, delivery)

    def delivered(self, sight: Sight, delivery: Delivery, now_s: float) -> str:
        """What a delivery that is one of the `deliveries` does, in words."""
        return self._ways(sight, self._ledger(sight).in_flight[delivery.number - 1], delivery.number, now_s)[
            delivery.way
        ]

    def _ways(self, sight: Sight, held: Held, number: int, now_s: float) -> tuple[str, ...]:
        if held.completes is None and held.expires_s is None and held.provider not in self._ledger(sight).open_ended:
            return (ARRIVES,)
        picture = self._picture(sight)
        known = self._possible.get((picture.key, number, now_s))
        if known is None:
            from once_fakes.held import ways

            with LedgerSnapshot(picture.data).at(now_s) as connection:
                known = ways(connection, number)
            self._possible.put((picture.key, number, now_s), known)
        return known

    def attempts(self, sight: Sight, incarnation: int) -> dict[LogicalKey, int]:
        """How often each request of a life (1 for the first) has reached its provider, unread or not."""
        mask = self.mask(sight.tokens)
        asked = (
            self.oracle.request(arrival, mask)
            for arrival in self._ledger(sight).arrivals
            if arrival.incarnation == incarnation
        )
        return dict(sorted(collections.Counter(asked).items()))

    def arrivals(self, sight: Sight, incarnation: int) -> dict[str, int]:
        """How many requests of a life (1 for the first) have reached each provider."""
        arrived = (arrival.provider for arrival in self._ledger(sight).arrivals if arrival.incarnation == incarnation)
        return dict(collections.Counter(arrived))

    def keys_sent(self, sight: Sight) -> list[str]:
        """The idempotency keys of all requests so far."""
        return [arrival.key for arrival in self._ledger(sight).arrivals if arrival.key is not None]

    def intents(self, sight: Sight) -> tuple[Intent, ...]:
        return self._ledger(sight).intents

    def contracts(self, sight: Sight) -> list[str]:
        """What the providers in use promise, in sentences: those that some answer in any life has relied upon."""
        declared = self._ledger(sight).providers
        if not declared:
            return []
        from once_fakes import Contract
        from once_fakes.promises import mattered

        said: list[str] = []
        for provider in declared:
            contract = Contract.from_json(provider.contract)
            sentences, others = mattered(contract, self._relied[provider.name])
            name = f"{provider.name}: {contract.name}"
            said += [f"{name}: {sentence}" for sentence in sentences]
            if others:
                promises = "promise" if others == 1 else "promises"
                said.append(f"{name}: {others} {'more ' if sentences else ''}{promises}, on which nothing depended")
        return said

    def misnamed(self, sight: Sight) -> list[str]:
        """Providers whose effects lack the field that is said to hold their logical key, each with that field."""
        rows = self.rows(sight)
        keyed = {effect.provider: False for effect in rows.effects}
        for effect in rows.effects:
            keyed[effect.provider] |= effect.logical_key is not None
        return [
            f"{provider.name}: key_field={provider.key_field!r}"
            for provider in rows.providers
            if provider.key_field is not None and not keyed.get(provider.name, True)
        ]

    def _named(self, tokens: frozenset[str]) -> Naming:
        return self.naming.with_tokens(tokens)

    @staticmethod
    def _picture(sight: Sight) -> LedgerPicture:
        return next(snapshot for _, snapshot in sight.picture.snapshots if isinstance(snapshot, LedgerPicture))

    def _ledger(self, sight: Sight) -> _Facts:
        picture = self._picture(sight)
        known = self._facts.get(picture.key)
        if known is None:
            ledger = LedgerSnapshot(picture.data)
            providers = tuple(ledger.providers())
            contracts = {one.name: json.loads(one.contract) for one in providers}
            known = _Facts(
                tuple(ledger.begun()),
                tuple(ledger.arrivals()),
                tuple(ledger.counters()),
                tuple(ledger.intents()),
                providers,
                frozenset(one.name for one in providers if contracts[one.name].get("dedup") != "none"),
                tuple(ledger.in_flight()),
                frozenset(one.name for one in providers if contracts[one.name].get("lookup", "none") != "none"),
                frozenset(one.name for one in providers if _is_open(contracts[one.name])),
                frozenset(one.name for one in providers if _yields(contracts[one.name])),
            )
            self._facts.put(picture.key, known)
            self._note_relied(known, ledger.asked(), ledger.events())
        return known

    def _note_relied(self, facts: _Facts, asked: frozenset[str], events: list[Event]) -> None:
        """Which promises of a provider decided an answer, in any picture that was looked at."""
        for arrival in facts.arrivals:
            self._relied[arrival.provider].update(arrival.relied.split(","))
        for provider in asked:
            self._relied[provider].add("lookup")
        for event in events:
            self._relied[event.provider].add("webhooks")
        for held in facts.in_flight:
            if held.expires_s is not None:
                self._relied[held.provider].add("request_lifetime_s")

    def _located(self, counter: Counter) -> tuple[str, str]:
        known = self._places.get(counter.path)
        if known is None:
            known = self._world.locate(Path(counter.path))
            if known is None:
                raise ScenarioError(
                    f"once.count({counter.path!r}): the file is in no tracked directory; put it below tmp_path or "
                    "once.path, or track its directory with once.track(...)"
                )
            self._places[counter.path] = known
        return known

    def _counted(self, counter: Counter, sight: Sight) -> tuple[Effect, ...]:
        store, relative = self._located(counter)
        snapshot = dict(sight.picture.snapshots).get(store)
        entries = snapshot.entries if isinstance(snapshot, DirectorySnapshot) else ()
        parts = (relative, f"{relative}-wal", f"{relative}-journal")
        files = {entry.path: entry for entry in entries if entry.path in parts}
        if relative not in files:
            return ()
        content = counter, tuple(files[part].digest if part in files else b"" for part in parts)
        known = self._tables.get(content)
        if known is None:
            known = tuple(_rows_as_effects(counter, *(files[part].data if part in files else None for part in parts)))
            self._tables.put(content, known)
        return known


def _is_open(contract: dict[str, Any]) -> bool:
    return any(value == "unspecified" for value in contract.values()) or isinstance(contract.get("retention_s"), list)


def _yields(contract: dict[str, Any]) -> bool:
    return contract.get("request_lifetime_s") is not None or contract.get("fencing", "none") != "none"


def _rows_as_effects(
    counter: Counter, data: bytes | None, wal: bytes | None, journal: bytes | None
) -> Iterator[Effect]:
    try:
        rows = query(data or b"", wal, journal, counter.sql)
    except sqlite3.Error as error:
        raise ScenarioError(f"once.count({counter.path!r}, {counter.sql!r}): {error}") from None
    for row in rows:
        if len(row) != 2 or not isinstance(row[1], int) or row[1] < 0:
            raise ScenarioError(
                f"once.count(..., {counter.sql!r}): each row must be (logical key, number of effects), not {row!r}"
            )
        payload = json.dumps({"key": str(row[0])}, sort_keys=True)
        yield from [Effect(0, counter.name, "", str(row[0]), payload, 0)] * row[1]
