"""Values from before the incarnations: a forked child has them, a restarted process would have others.

A module-level `WORKER = uuid4()` or `STARTED = time.time()` is the same in every child, so code that is wrong for
a real restart would pass. The parent notes what it draws, and the recording looks for it in the world.
"""

from __future__ import annotations

import base64
import os
import random
import time
import uuid
from collections.abc import Sequence
from typing import Any

from pytest_once.canonical import Form, Naming, Row, occurring

ORIGINAL_URANDOM = os.urandom

_UUID_BYTES = 16
_SHORTEST = 8
"""Bytes below which a draw is too common a text to say where it came from."""
_MOST = 10_000

_drawn: list[bytes] = []
_since_s: float | None = None


def _noting(size: int, /) -> bytes:
    drawn = ORIGINAL_URANDOM(size)
    if size >= _SHORTEST and len(_drawn) < _MOST:
        _drawn.append(drawn)
    return drawn


def watch() -> None:
    """Note every draw from the operating system's source from now on; in the parent, as early as possible."""
    global _since_s
    if _since_s is None:
        _since_s = time.time()
        os.urandom = _noting
        own_random: Any = random
        own_random._urandom = _noting


def urandom() -> Any:
    """What os.urandom is in this process: the original, or the one that notes."""
    return ORIGINAL_URANDOM if _since_s is None else _noting


def place_in(rows: Sequence[Row], *, times: bool = True) -> str | None:
    """The first place ("agent.db/tasks.owner") that holds a noted draw, or a real instant since `watch()`.

    times: whether instants are looked for; not where another program may have written them, whose time is real.
    """
    if _since_s is None:
        return None
    tokens = frozenset(form for drawn in _drawn for form in text_forms(drawn))
    naming = Naming(tokens, clock_window=(_since_s - 1.0, time.time() + 1.0) if times else (0.0, 0.0))
    for row in rows:
        if occurring([row], tokens) or Form([row], naming).instants:
            cells = zip(row.names, row.cells, strict=True)
            holding = next((name for name, cell in cells if Form([Row("", ("",), (cell,))], naming).varies), "")
            return f"{row.place}.{holding}" if holding else row.place
    return None


def text_forms(drawn: bytes) -> list[str]:
    """How code may write these random bytes: hex, base64 of both kinds, and as a version 4 UUID."""
    encoded = (base64.urlsafe_b64encode(drawn), base64.b64encode(drawn))
    forms = [drawn.hex(), *dict.fromkeys(text.rstrip(b"=").decode() for text in encoded)]
    if len(drawn) == _UUID_BYTES:
        as_uuid = uuid.UUID(bytes=drawn, version=4)
        forms += [str(as_uuid), as_uuid.hex]
    return forms
