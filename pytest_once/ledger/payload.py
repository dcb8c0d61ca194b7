"""A request's content as text that is equal for equal content."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from math import isfinite
from pathlib import PurePath
from uuid import UUID

_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")


def canonical_payload(value: object) -> str:
    """The value as JSON text that is equal for equal values: sorted keys, no spaces, no memory addresses.

    Bytes become {"bytes": hex}, paths, decimals, dates and UUIDs their text, any other object its repr.
    """
    text = json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    # A lone surrogate cannot be stored; as backslash escape it is the same JSON string.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _plain(value: object) -> object:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if isfinite(value) else {"float": repr(value)}
        case bytes() | bytearray() | memoryview():
            return {"bytes": value.hex()}
        case Mapping():
            return {key if isinstance(key, str) else _key(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case set() | frozenset():
            return sorted((_plain(item) for item in value), key=canonical_payload)
        case datetime() | date() | time():
            return value.isoformat()
        case PurePath() | Decimal() | UUID():
            return str(value)
    return _ADDRESS.sub("", repr(value))


def _key(value: object) -> str:
    plain = _plain(value)
    return plain if isinstance(plain, str) else canonical_payload(plain)
