"""Which action it is: names that stay the same however often it is tried, and what exactly they stand for.

An attempt's own marks (request id, tool-call id, trace id, time) are never part of a name: they change with each
attempt, and one action would become several.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

MAX_SAFE_INTEGER = 2**53 - 1
"""The largest integer that every language keeps exactly (IEEE 754 double precision)."""

_PREFIX_LENGTH = 48


class IdentityError(ValueError):
    """A name cannot be made of this: it would be another one in another language, or not be unique."""


class EffectConflict(Exception):
    """A known name arrives with another effect: another amount, recipient, text. It is refused, not replayed."""


def once_id(parts: Sequence[str | int | float]) -> str:
    """The `once-id-v1` of an operation: the same text in every language for the same parts.

    Made of a readable prefix and the first half of a SHA-256 over the parts with their lengths, so that ("a", "b") and
    ("ab",) differ. Raises IdentityError for booleans, None, fractions, integers beyond 2^53-1, and text that is no
    Unicode.
    """
    if isinstance(parts, str) or not parts:
        raise IdentityError(f"once_id needs a sequence of at least one part, not {parts!r}")
    texts = [_part(part) for part in parts]
    digest = hashlib.sha256(b"once-id-v1\0" + len(texts).to_bytes(4, "big"))
    for text in texts:
        data = text.encode()
        digest.update(len(data).to_bytes(4, "big") + data)
    return f"{_prefix(texts[0])}:{digest.hexdigest()[:32]}"


def _part(part: object) -> str:
    if isinstance(part, float) and part.is_integer():
        part = int(part)
    if isinstance(part, str):
        try:
            part.encode()
        except UnicodeEncodeError:
            raise IdentityError(f"{part!r} holds half of a surrogate pair, which has no UTF-8 form") from None
        return part
    if isinstance(part, int) and not isinstance(part, bool) and abs(part) <= MAX_SAFE_INTEGER:
        return str(part)
    raise IdentityError(
        f"{part!r} is written differently from language to language; give text, or an integer up to 2^53-1"
    )


def _prefix(text: str) -> str:
    dashed = re.sub(r"[^a-z0-9_:.-]+", "-", text.lower()).strip("-")
    return re.sub(r"^[^a-z0-9]+", "", dashed)[:_PREFIX_LENGTH] or "operation"


def intent_id(tenant: str, task: str, step: str, action: str) -> str:
    """`tenant:task:step:action`. A ":" inside a part is written "%3A", so that no two intents share a name.

    Raises IdentityError for an empty part.
    """
    parts = {"tenant": tenant, "task": task, "step": step, "action": action}
    if empty := [name for name, part in parts.items() if not part]:
        raise IdentityError(f"an intent without {', '.join(empty)} is not told apart from others")
    return ":".join(part.replace("%", "%25").replace(":", "%3A") for part in parts.values())


def uuid7(clock: Callable[[], float] = time.time) -> str:
    """A new UUIDv7 (RFC 9562): 48 bits of milliseconds, then random bits. Store it before acting under it."""
    milliseconds = int(clock() * 1000) & (1 << 48) - 1
    number = milliseconds << 80 | int.from_bytes(os.urandom(10), "big")
    number = number & ~(0xF << 76) | 7 << 76
    number = number & ~(0b11 << 62) | 0b10 << 62
    return str(uuid.UUID(int=number))


def canonical(value: object) -> str:
    """One JSON text for equal values: sorted names, no spaces, whole floats as integers.

    Raises IdentityError for what JSON does not have (other types, NaN, names that are no text).
    """
    try:
        return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise IdentityError(f"this has no JSON form: {error}") from error


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        if wrong := [name for name in value if not isinstance(name, str)]:
            raise TypeError(f"names of fields are text, not {wrong[0]!r}")
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return int(value)
    return value


def fingerprint(value: object) -> str:
    """SHA-256 of the canonical JSON."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Effect:
    """An action, and which fields of its payload decide what it does.

    bearing: amount, recipient, text: other values are another action. incidental: trace ids, wording for the log: other
    values are the same action. Every field of a payload must be named in one of them; an unnamed one is refused, since
    leaving out a field that matters lets a different action pass as a repetition.
    """

    action: str
    bearing: tuple[str, ...]
    incidental: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if twice := set(self.bearing) & set(self.incidental):
            raise IdentityError(f"{self.action}: {', '.join(sorted(twice))} cannot be bearing and incidental")

    def binding(self, payload: Mapping[str, object]) -> str:
        """Fingerprint of the action and its effect-bearing fields. Raises IdentityError for a field not declared."""
        if unknown := sorted(set(payload) - set(self.bearing) - set(self.incidental)):
            raise IdentityError(
                f"{self.action}: does {', '.join(unknown)} decide what happens? Name it as bearing or incidental"
            )
        return fingerprint({"action": self.action, "effect": self._borne(payload)})

    def changed(self, before: Mapping[str, object], after: Mapping[str, object]) -> tuple[str, ...]:
        """The effect-bearing fields in which two payloads differ."""
        old, new = self._borne(before), self._borne(after)
        return tuple(name for name in self.bearing if (name in old, old.get(name)) != (name in new, new.get(name)))

    def _borne(self, payload: Mapping[str, object]) -> dict[str, object]:
        # A field that is absent and one that is null are two things to many providers.
        return {name: payload[name] for name in self.bearing if name in payload}
