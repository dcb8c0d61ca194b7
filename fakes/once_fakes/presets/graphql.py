"""As much of GraphQL as a single mutation needs: its field, arguments and directives, variables filled in.

Source: https://spec.graphql.org/October2021/ (sections 2.1 to 2.12). Not read: fragments, more than one field,
selection sets (they only have to be balanced), block strings' indentation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_TOKEN = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"""|"(?:[^"\\\n]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|[$@]?[_A-Za-z]\w*|\.\.\.|[!$&()\[\]{}:=|]'
)
_IGNORED = re.compile(r"(?:[\s,\ufeff]|#[^\n]*)*")
_NUMBER = re.compile(r"-?\d")
_CLOSES = {"(": ")", "[": "]", "{": "}"}
_CONSTANTS: dict[str, Any] = {"true": True, "false": False, "null": None}
_MAX_DEPTH = 100


@dataclass(frozen=True, slots=True)
class Call:
    """The field that an operation asks for. kind: "mutation", "query" or "subscription"."""

    kind: str
    field: str
    arguments: Mapping[str, Any]
    directives: Mapping[str, Mapping[str, Any]]


def call_in(document: str, variables: Mapping[str, Any]) -> Call:
    """The first field of the document's operation. Raises ValueError if it cannot be read."""
    return _Reader(_tokens(document), variables).operation()


def _tokens(document: str) -> list[str]:
    found: list[str] = []
    position = 0
    while True:
        ignored = _IGNORED.match(document, position)
        position = ignored.end() if ignored else position
        if position == len(document):
            return found
        token = _TOKEN.match(document, position)
        if token is None:
            raise ValueError(f"unexpected {document[position]!r} at character {position + 1}")
        found.append(token[0])
        position = token.end()


class _Reader:
    def __init__(self, tokens: list[str], variables: Mapping[str, Any]) -> None:
        self._tokens = tokens
        self._variables = variables
        self._next = 0

    def operation(self) -> Call:
        kind = "query" if self._peek() == "{" else self._name()
        if kind not in ("query", "mutation", "subscription"):
            raise ValueError(f"unexpected {kind!r} where an operation is to begin")
        if self._peek() not in ("{", "(") and not self._peek().startswith("@"):
            self._name()
        if self._peek() == "(":  # declared types of variables
            self._skip()
        outer = self._directives()
        self._expect("{")
        field = self._name()
        if self._peek() == ":":
            self._expect(":")
            field = self._name()
        arguments = self._arguments() if self._peek() == "(" else {}
        directives = {**outer, **self._directives()}
        if self._peek() == "{":
            self._skip()
        self._expect("}")
        return Call(kind, field, arguments, directives)

    def _directives(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        while self._peek().startswith("@"):
            name = self._take().removeprefix("@")
            found[name] = self._arguments() if self._peek() == "(" else {}
        return found

    def _arguments(self) -> dict[str, Any]:
        return self._pairs("(", 0)

    def _pairs(self, opening: str, depth: int) -> dict[str, Any]:
        self._expect(opening)
        found: dict[str, Any] = {}
        while self._peek() != _CLOSES[opening]:
            name = self._name()
            self._expect(":")
            value = self._value(depth)
            if value is not _ABSENT:
                found[name] = value
        self._take()
        return found

    def _value(self, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise ValueError("values are nested too deeply")
        token = self._peek()
        if token == "{":
            return self._pairs("{", depth + 1)
        self._take()
        if token == "[":
            found = []
            while self._peek() != "]":
                found.append(self._value(depth + 1))
            self._take()
            return found
        if token.startswith('"'):
            return token[3:-3] if token.startswith('"""') else json.loads(token)
        if token.startswith("$"):
            return self._variables.get(token[1:], _ABSENT)
        if _NUMBER.match(token):
            return json.loads(token)
        if not token[0].isalpha() and token[0] != "_":
            raise ValueError(f"unexpected {token!r} where a value is to be")
        return _CONSTANTS.get(token, token)  # a name is a value of an enumeration

    def _skip(self) -> None:
        open_ends = [_CLOSES[self._take()]]
        while open_ends:
            token = self._take()
            if token in _CLOSES:
                open_ends.append(_CLOSES[token])
            elif token in _CLOSES.values() and token != open_ends.pop():
                raise ValueError(f"unexpected {token!r}")

    def _name(self) -> str:
        token = self._take()
        if not (token[0].isalpha() or token[0] == "_"):
            raise ValueError(f"unexpected {token!r} where a name is to be")
        return token

    def _expect(self, wanted: str) -> None:
        token = self._take()
        if token != wanted:
            raise ValueError(f"unexpected {token!r} where {wanted!r} is to be")

    def _peek(self) -> str:
        if self._next >= len(self._tokens):
            raise ValueError("unexpected end of the document")
        return self._tokens[self._next]

    def _take(self) -> str:
        token = self._peek()
        self._next += 1
        return token


_ABSENT = object()
