"""Which store a URL names: the built-in ones. Those of others come through the hook `pytest_once_stores`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from pytest_once.stores import Store

OpenStore: TypeAlias = Callable[[str], "Store | None"]
"""Makes the store for a target, or answers None if it knows none."""


def is_url(target: str) -> bool:
    """Whether a text names something other than a directory."""
    return "://" in target


def open_builtin(target: str) -> Store | None:
    """A PostgreSQL or Redis store for a URL of theirs, with or without a driver's name ("postgresql+psycopg://").

    Raises StoreError if it is theirs and cannot be used.
    """
    scheme = target.partition("://")[0].partition("+")[0].lower()
    if scheme in ("postgresql", "postgres"):
        from pytest_once.stores.postgresql import PostgreSQLStore

        return PostgreSQLStore(target)
    if scheme in ("redis", "rediss"):
        from pytest_once.stores.redis import RedisStore

        return RedisStore(target)
    return None
