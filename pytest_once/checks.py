"""Safety, liveness and claims against the ledger, as verdicts. Nothing here runs anything."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pytest_once.ledger import Arrival, Effect, Intent
from pytest_once.scenario import Expectations, ScenarioError


class Verdict(Enum):
    """What is true of a test. Only EXACTLY_ONCE passes, and ESCALATED where the test allows it."""

    EXACTLY_ONCE = "EXACTLY_ONCE"
    DUPLICATE = "DUPLICATE"
    OMISSION = "OMISSION"
    STUCK = "STUCK"
    ESCALATED = "ESCALATED"
    CONFLICT_MISSED = "CONFLICT_MISSED"
    FALSE_FAILURE = "FALSE_FAILURE"
    TOO_MANY_ATTEMPTS = "TOO_MANY_ATTEMPTS"
    NONDETERMINISTIC = "NONDETERMINISTIC"
    ESCAPED_EFFECT = "ESCAPED_EFFECT"
    INCONCLUSIVE = "INCONCLUSIVE"

    def __str__(self) -> str:
        return self.value


SEVERITY = (
    Verdict.DUPLICATE,
    Verdict.OMISSION,
    Verdict.FALSE_FAILURE,
    Verdict.CONFLICT_MISSED,
    Verdict.TOO_MANY_ATTEMPTS,
    Verdict.STUCK,
    Verdict.ESCAPED_EFFECT,
    Verdict.NONDETERMINISTIC,
    Verdict.INCONCLUSIVE,
    Verdict.ESCALATED,
    Verdict.EXACTLY_ONCE,
)
"""Worst first: what a report is headed by when several things are true."""


@dataclass(frozen=True, slots=True, order=True)
class LogicalKey:
    """The identity of one intended effect, in business terms: who does what, for which intent."""

    provider: str
    operation: str
    name: str

    def __str__(self) -> str:
        what = " ".join(part for part in (self.provider, self.operation) if part)
        return f"{self.name} ({what})" if self.name and what else self.name or what


Mask = Callable[[str], str]
"""Replaces what is random or a time in a text by a fixed sign."""

Counts = Mapping[LogicalKey, int]


@dataclass(frozen=True, slots=True)
class Oracle:
    """What the effects should be, and which logical key an effect belongs to.

    intended: count per logical key; a key that is not in it is intended 0 times.
    declared: the business keys that were named, most specific first. volatile: payload leaves, by
    (provider, operation), which differ between two fault-free runs and so identify nothing.
    """

    intended: Counts
    declared: tuple[str, ...]
    key: Callable[[Effect], str | None] | None
    volatile: Mapping[tuple[str, str], frozenset[str]]

    def key_of(self, effect: Effect, mask: Mask) -> LogicalKey:
        operation = mask(effect.operation)
        named = effect.logical_key if self.key is None else self.key(effect)
        if named is None:
            named = _declared_in(effect, self.declared)
        if named is None:
            hidden = self.volatile.get((effect.provider, operation), frozenset())
            named = _identity(effect.payload, hidden, mask)
        return LogicalKey(effect.provider, operation, named)

    def request(self, arrival: Arrival, mask: Mask) -> LogicalKey:
        """What an arrival asks for, in full: everything it says that is not random."""
        operation = mask(arrival.operation)
        hidden = self.volatile.get((arrival.provider, operation), frozenset())
        return LogicalKey(arrival.provider, operation, _identity(arrival.payload, hidden, mask))

    def count(self, effects: Iterable[Effect], mask: Mask) -> dict[LogicalKey, int]:
        return dict(sorted(Counter(self.key_of(effect, mask) for effect in effects).items()))

    def excess(self, counts: Counts) -> dict[LogicalKey, int]:
        """Keys with more effects than intended, and how many they have."""
        return {key: n for key, n in sorted(counts.items()) if n > self.intended.get(key, 0)}

    def missing(self, counts: Counts) -> dict[LogicalKey, int]:
        """Keys with fewer effects than intended, and how many they have."""
        return {key: counts.get(key, 0) for key, n in sorted(self.intended.items()) if counts.get(key, 0) < n}


def build_oracle(
    expectations: Expectations,
    intents: Sequence[Intent],
    first: Sequence[Effect],
    second: Sequence[Effect],
    masks: tuple[Mask, Mask],
) -> Oracle:
    """Learn from two fault-free runs what the test intends. Raises ScenarioError when they disagree or did nothing."""
    counts = dict(expectations.keys)
    on_provider: dict[str, str] = {}
    for intent in intents:
        counts[intent.key] = intent.count
        if intent.provider is not None:
            on_provider[intent.key] = intent.provider
    if isinstance(expectations.key, str):
        counts.setdefault(expectations.key, 1)
    if not first and any(counts.values()) | (not counts):
        raise ScenarioError(
            "the fault-free run had no effect: nothing reached a provider, a counted tool or a counted table, so "
            "there is nothing to count. Point the client at once.provider(...).url, wrap the acting function with "
            "once.tool(...), or name the table that holds the effects with once.count(...)"
        )
    volatile = _volatile_leaves(first, second, masks)
    key = expectations.key if callable(expectations.key) else None
    learnt = Oracle({}, tuple(sorted(counts, key=lambda name: (-len(name), name))), key, volatile)
    intended: dict[LogicalKey, int] = {}
    seen = learnt.count(first, masks[0])
    if seen != learnt.count(second, masks[1]):
        raise ScenarioError(
            "two fault-free runs had different effects, so it is not known which were intended: "
            f"{_listed(seen)} against {_listed(learnt.count(second, masks[1]))}. Make the body deterministic, or "
            "name the intent with key= or once.intend(...)"
        )
    for logical, n in seen.items():
        intended[logical] = counts.get(logical.name, n)
    for name, n in counts.items():
        places = [logical for logical in seen if logical.name == name]
        if on_provider.get(name) is not None:
            for logical in places:
                if logical.provider != on_provider[name]:
                    intended[logical] = seen[logical]
        if not any(on_provider.get(name, logical.provider) == logical.provider for logical in places) and n > 0:
            intended[LogicalKey(on_provider.get(name, ""), "", name)] = n
    return Oracle(intended, learnt.declared, key, volatile)


def _listed(counts: Counts) -> str:
    return "; ".join(f"{n} x {key}" for key, n in counts.items()) or "none"


def _declared_in(effect: Effect, declared: tuple[str, ...]) -> str | None:
    for name in declared:
        pattern = rf"(?<![0-9A-Za-z_-]){re.escape(name)}(?![0-9A-Za-z_-])"
        if re.search(pattern, effect.operation) or any(
            re.search(pattern, text) for _, text in _leaves(json.loads(effect.payload))
        ):
            return name
    return None


def _volatile_leaves(
    first: Sequence[Effect], second: Sequence[Effect], masks: tuple[Mask, Mask]
) -> dict[tuple[str, str], frozenset[str]]:
    grouped: tuple[dict[tuple[str, str], list[Effect]], dict[tuple[str, str], list[Effect]]] = ({}, {})
    for effects, mask, groups in zip((first, second), masks, grouped, strict=True):
        for effect in effects:
            groups.setdefault((effect.provider, mask(effect.operation)), []).append(effect)
    volatile: dict[tuple[str, str], frozenset[str]] = {}
    for place, effects in grouped[0].items():
        differing: set[str] = set()
        for one, other in zip(effects, grouped[1].get(place, ()), strict=False):
            ours = {path: masks[0](text) for path, text in _leaves(json.loads(one.payload))}
            theirs = {path: masks[1](text) for path, text in _leaves(json.loads(other.payload))}
            differing |= {path for path in ours.keys() & theirs.keys() if ours[path] != theirs[path]}
        volatile[place] = frozenset(differing)
    return volatile


def _leaves(value: Any, path: str = "") -> list[tuple[str, str]]:
    """(dotted path, text) of every leaf of a JSON value, in order."""
    if isinstance(value, dict):
        return [leaf for name in sorted(value) for leaf in _leaves(value[name], f"{path}.{name}" if path else name)]
    if isinstance(value, list):
        return [leaf for i, item in enumerate(value) for leaf in _leaves(item, f"{path}[{i}]")]
    return [(path, value if isinstance(value, str) else json.dumps(value))]


def _identity(payload: str, hidden: frozenset[str], mask: Mask) -> str:
    leaves = _leaves(json.loads(payload))
    return " ".join(f"{path}={'*' if path in hidden else mask(text)}" if path else mask(text) for path, text in leaves)
