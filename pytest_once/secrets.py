"""What no report may show: credentials in headers and URLs, and the payload fields that a project names.

Values are learnt where they are seen, in memory only, and hidden wherever they turn up; besides, whatever looks like
the value of a secret header or field is hidden where it stands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cached_property
from typing import Any, TypeVar
from urllib.parse import quote, quote_plus, unquote

from pytest_once.faults import Schedule

HIDDEN = "***"
SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "api-key"})

LEAST_LENGTH = 4
"""Shorter values are hidden in their field only: elsewhere they would take parts of innocent words with them."""
_WHOLE_WORDS_BELOW = 8

T = TypeVar("T")

_USERINFO = re.compile(r"(?<=://)([^\s/@:'\"<>]*):([^\s/@'\"<>]*)@")
_HEADER = re.compile(
    rf"(?P<name>\b(?:{'|'.join(sorted(SECRET_HEADERS, key=len, reverse=True))})\b[\"']?)"
    r"(?:(?P<between>\s*[:=,]\s*b?)(?P<quote>[\"'])(?P<quoted>(?:\\.|(?!(?P=quote)).)*)(?P=quote)"
    r"|(?P<colon>\s*[:=]\s*)(?P<bare>[^\s\"'][^\n\"']*))",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"(?:bearer|basic|token|digest|negotiate)\s+", re.IGNORECASE)
_ATTRIBUTES = frozenset({"path", "domain", "expires", "max-age", "samesite"})


class Secrets:
    """Knows what to hide. names: payload fields, at any depth ("password") or as dotted paths ("card.number")."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._names = tuple(names)
        self._values: set[str] = set()
        self._covered: dict[str, str] = {}

    def learn(self, value: str) -> None:
        """A value that must not be told, whole or in the parts that a header is made of."""
        parts = [value, _SCHEME.sub("", value, count=1)]
        for pair in value.split(";") if "=" in value else ():
            name, _, content = pair.strip().partition("=")
            if name.lower() not in _ATTRIBUTES:
                parts.append(content)
        for part in parts:
            text = part.strip().strip('"')
            if len(text) >= LEAST_LENGTH and text != HIDDEN:
                self._values |= {text, json.dumps(text)[1:-1], repr(text)[1:-1], quote(text, safe=""), quote_plus(text)}

    def hidden(self, thing: T) -> T:
        """A copy without secrets: of a text, or of data made of dataclasses, tuples, lists and mappings."""
        for text in dict.fromkeys(_texts(thing)):
            self._learn_from(text)
        self._covered.clear()
        covered: T = self._cover(thing)
        return covered

    # -- learning ------------------------------------------------------------------------------------

    def _learn_from(self, text: str) -> None:
        for match in _USERINFO.finditer(text):
            self.learn(unquote(match[2]))
        for match in _HEADER.finditer(text):
            self.learn(match["quoted"] or match["bare"] or "")
        if self._names:
            self._learn_from_json(text)
            for match in self._field.finditer(text):
                if match["quoted"]:
                    self.learn(match["quoted"])

    def _learn_from_json(self, text: str) -> None:
        for path, leaf in _leaves(_as_json(text)):
            if self._is_secret(path) and leaf is not None and not isinstance(leaf, bool):
                self.learn(leaf if isinstance(leaf, str) else json.dumps(leaf))

    def _is_secret(self, path: str) -> bool:
        """Whether a leaf's dotted path leads to, or through, a field that is named."""
        return any(f".{name}." in f".{path}." for name in self._names)

    # -- hiding --------------------------------------------------------------------------------------

    def _cover(self, thing: Any) -> Any:
        if isinstance(thing, str):
            if thing not in self._covered:
                self._covered[thing] = self._cover_text(thing)
            return self._covered[thing]
        if isinstance(thing, Schedule | type):
            return thing
        if is_dataclass(thing) and not isinstance(thing, type):
            changes = {
                one.name: self._cover(getattr(thing, one.name))
                for one in fields(thing)
                if one.init and not isinstance(getattr(thing, one.name), int | float | None)
            }
            return replace(thing, **changes)
        if isinstance(thing, tuple | list):
            return type(thing)(self._cover(item) for item in thing)
        if isinstance(thing, Mapping):
            return {self._cover(key): self._cover(item) for key, item in thing.items()}
        return thing

    def _cover_text(self, text: str) -> str:
        if self._names and (known := _as_json(text)) is not None:
            text = json.dumps(self._cover_leaves(known, ""), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        text = _USERINFO.sub(f"{HIDDEN}@", text)
        text = _HEADER.sub(_header_hidden, text)
        if self._names:
            text = self._field.sub(_field_hidden, text)
        return self._hide_values(text)

    def _cover_leaves(self, value: Any, path: str) -> Any:
        if isinstance(value, dict):
            return {name: self._cover_leaves(item, f"{path}.{name}" if path else name) for name, item in value.items()}
        if isinstance(value, list):
            return [self._cover_leaves(item, path) for item in value]
        return HIDDEN if self._is_secret(path) and value is not None else value

    def _hide_values(self, text: str) -> str:
        if not self._values or not any(value in text for value in self._values):
            return text
        for value in sorted(self._values, key=lambda value: (-len(value), value)):
            if value in text:
                word = r"(?<![0-9A-Za-z]){}(?![0-9A-Za-z])" if len(value) < _WHOLE_WORDS_BELOW else "{}"
                text = re.sub(word.format(re.escape(value)), HIDDEN, text)
        return text

    @cached_property
    def _field(self) -> re.Pattern[str]:
        names = "|".join(re.escape(name) for name in sorted(self._names, key=len, reverse=True))
        return re.compile(
            rf"(?P<name>(?<![0-9A-Za-z_-])(?:{names})(?:(?:\.[0-9A-Za-z_-]+|\[\d+\])*)[\"']?\s*[:=]\s*)"
            r"(?:(?P<quote>[\"'])(?P<quoted>(?:\\.|(?!(?P=quote)).)*)(?P=quote)|(?P<bare>[^\s,;&(){}\[\]\"']+))"
        )


def _header_hidden(match: re.Match[str]) -> str:
    if match["quote"]:
        return f"{match['name']}{match['between']}{match['quote']}{HIDDEN}{match['quote']}"
    return f"{match['name']}{match['colon']}{HIDDEN}"


def _field_hidden(match: re.Match[str]) -> str:
    mark = match["quote"] or ""
    return f"{match['name']}{mark}{HIDDEN}{mark}"


def _as_json(text: str) -> Any:
    """The object or list that the text is, or None if it is neither."""
    if text[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted path, leaf); places in lists are left out of the path."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, path)
    else:
        yield path, value


def _texts(thing: Any) -> Iterator[str]:
    if isinstance(thing, str):
        yield thing
    elif is_dataclass(thing) and not isinstance(thing, type | Schedule):
        for one in fields(thing):
            yield from _texts(getattr(thing, one.name))
    elif isinstance(thing, tuple | list):
        for item in thing:
            yield from _texts(item)
    elif isinstance(thing, Mapping):
        for key, item in thing.items():
            yield from _texts(key)
            yield from _texts(item)
