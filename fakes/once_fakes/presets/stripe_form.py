"""Stripe's forms: fields with brackets (`metadata[order]=6735`), and its language for searches."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qsl

_NUMBERS = ("amount",)
"""Fields that hold whole numbers of the smallest unit of their currency."""
_DEEPEST = 8
_NAME = re.compile(r"([^\[\]]+)((?:\[[^\[\]]*\])*)")
_TERM = re.compile(r"""(?:metadata\[(["'])(?P<key>[^"']+)\1\]|(?P<field>[a-z_]+)) *: *(["']?)(?P<value>[^"']*)\4""")


def nested_form(content_type: str, body: bytes) -> dict[str, Any]:
    """The fields of a form; those with brackets are objects, `name[]` are lists. Raises ValueError if it is none."""
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type not in ("", "application/x-www-form-urlencoded"):
        raise ValueError(f"send the request as application/x-www-form-urlencoded, not as {media_type}")
    fields: dict[str, Any] = {}
    for name, value in parse_qsl(body.decode(), keep_blank_values=True):
        matched = _NAME.fullmatch(name)
        if matched is None or name.count("[") > _DEEPEST:
            raise ValueError(f"{name!r} is no name of a parameter")
        _put(fields, [matched[1], *re.findall(r"\[([^\[\]]*)\]", matched[2])], value)
    return {
        name: _number(value) if name in _NUMBERS else value if name == "metadata" else _with_lists(value)
        for name, value in fields.items()
    }


def search_terms(query: object) -> dict[str, str] | None:
    """What a search asks for: payload fields and their values; None if it cannot be understood."""
    terms: dict[str, str] = {}
    for part in str(query or "").split(" AND "):
        matched = _TERM.fullmatch(part.strip())
        if matched is None:
            return None
        terms[f"metadata.{matched['key']}" if matched["key"] else matched["field"]] = matched["value"]
    return terms


def _put(fields: dict[str, Any], path: list[str], value: str) -> None:
    *above, last = path
    for part in above:
        part = part or str(len(fields))
        inner = fields.setdefault(part, {})
        if not isinstance(inner, dict):
            raise ValueError(f"the parameter {part} is given as a value and as an object")
        fields = inner
    if isinstance(fields.get(last), dict):
        raise ValueError(f"the parameter {last} is given as an object and as a value")
    fields[last or str(len(fields))] = value


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value) else value


def _with_lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if list(value) == [str(number) for number in range(len(value))]:
        return [_with_lists(one) for one in value.values()]
    return {name: _with_lists(one) for name, one in value.items()}
