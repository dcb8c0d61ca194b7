"""The services that tests of stores and their seams need: named by environment variables, required where CI is set."""

from __future__ import annotations

import os
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
import redis

from pytest_once.stores.postgresql import PostgreSQLSnapshot, PostgreSQLStore
from pytest_once.stores.redis import RedisStore

POSTGRESQL_URL = "postgresql://127.0.0.1:5432/postgres"
REDIS_URL = "redis://127.0.0.1:6379"

SCHEMA = """
CREATE TABLE jobs (id bigserial PRIMARY KEY, task text UNIQUE NOT NULL, state text NOT NULL,
  made_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), job bigint NOT NULL REFERENCES jobs, body jsonb,
  sent boolean NOT NULL DEFAULT false);
"""
"""What the bodies work on, with the defaults that such tables have: serials, random ids and the server's time."""


def _absent(variable: str, url: str, error: Exception) -> None:
    message = f"no service at {url} ({str(error).strip()}); name one with {variable}"
    if os.environ.get("CI") == "true":
        pytest.fail(f"{message}: continuous integration must not leave these tests out", pytrace=False)
    pytest.skip(message)


@pytest.fixture(scope="session")
def server() -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """A connection to the PostgreSQL server's maintenance database."""
    url = os.environ.get("ONCE_POSTGRESQL_URL", POSTGRESQL_URL)
    try:
        connection = psycopg.connect(url, autocommit=True)
    except psycopg.OperationalError as error:
        _absent("ONCE_POSTGRESQL_URL", url, error)
        raise
    with connection:
        yield connection


@pytest.fixture(scope="session")
def postgresql(server: psycopg.Connection[tuple[object, ...]]) -> Iterator[str]:
    """URL of a database with the schema and no rows, for this process alone."""
    name = f"shop_{os.getpid()}"
    url = urlsplit(os.environ.get("ONCE_POSTGRESQL_URL", POSTGRESQL_URL))
    server.execute(f"CREATE DATABASE {name}".encode())
    try:
        own = urlunsplit(url._replace(path=f"/{name}"))
        with psycopg.connect(own) as connection:
            connection.execute(SCHEMA.encode())
        yield own
    finally:
        server.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture(scope="session")
def redis_url() -> str:
    """URL of a Redis server, without a number: each exploration then gets an empty database of its own."""
    url = os.environ.get("ONCE_REDIS_URL", REDIS_URL)
    try:
        with redis.Redis.from_url(url) as client:
            client.ping()
    except redis.ConnectionError as error:
        _absent("ONCE_REDIS_URL", url, error)
    return url


@pytest.fixture(scope="session")
def _copy(postgresql: str) -> Iterator[tuple[PostgreSQLStore, PostgreSQLSnapshot]]:
    store = PostgreSQLStore(postgresql)
    try:
        yield store, store.snapshot()
    finally:
        store.close()


@pytest.fixture
def database(_copy: tuple[PostgreSQLStore, PostgreSQLSnapshot]) -> str:
    """URL of a database with the schema and no rows, which a test may write."""
    store, empty = _copy
    store.restore(empty)
    return store.address


@pytest.fixture
def number(redis_url: str) -> Iterator[str]:
    """URL of an empty numbered Redis database, which a test may write."""
    store = RedisStore(redis_url)
    try:
        yield store.address
    finally:
        store.close()
