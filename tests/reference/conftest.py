"""The three stores that every test of the reference runs on, and an empty database in each."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from pytest_once.reference.answers import Answer
from pytest_once.reference.claims import Delivery
from pytest_once.reference.databases import AsyncDatabase, AsyncSQLite, PostgreSQL, SQLite
from pytest_once.reference.relay import AsyncRelay, Relay, Round, Send, Terms
from pytest_once.reference.steps import Statement, Steps
from tests.services import POSTGRESQL_URL

T = TypeVar("T")

STORES = ("sqlite3", "aiosqlite", "psycopg")

ANSWER = "answer"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{ANSWER}(verdict): a judged test; explored, this must be the verdict, and nothing may be left unexplored",
    )


class Store(Protocol):
    """What a test does with a database, whichever it is."""

    def transact(self, steps: Steps[T]) -> T: ...
    def migrate(self) -> list[int]: ...
    def close(self) -> None: ...


class OnALoop:
    """An asynchronous database for synchronous tests."""

    def __init__(self, database: AsyncDatabase) -> None:
        self.database = database
        self._runner = asyncio.Runner()

    def transact(self, steps: Steps[T]) -> T:
        return self.run(self.database.transact(steps))

    def migrate(self) -> list[int]:
        return self.run(self.database.migrate())

    def close(self) -> None:
        self.run(self.database.close())
        self._runner.close()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(coroutine)


def relay_round(store: Store, send: Send, terms: Terms) -> Round:
    """One round of the relay that belongs to the store."""
    if isinstance(store, OnALoop):

        async def send_async(batch: Sequence[Delivery]) -> Mapping[str, Answer]:
            # A receiver of the test's may run an event loop of its own.
            return await asyncio.to_thread(send, batch)

        return store.run(AsyncRelay(store.database, send_async, terms).round())
    return Relay(store, send, terms).round()


class Clock:
    """Time that moves when a test says so, in seconds."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def new_schema(server: psycopg.Connection[tuple[object, ...]]) -> Iterator[Callable[[], str]]:
    """Makes an empty schema in a database of this process and gives its URL."""
    name = f"reference_{os.getpid()}"
    address = urlsplit(os.environ.get("ONCE_POSTGRESQL_URL", POSTGRESQL_URL))
    server.execute(f"CREATE DATABASE {name}".encode())
    numbers = itertools.count()
    own = urlunsplit(address._replace(path=f"/{name}"))

    def make() -> str:
        schema = f"s{next(numbers)}"
        with psycopg.connect(own, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {schema}".encode())
        return f"{own}?options=-csearch_path%3D{schema}"

    try:
        yield make
    finally:
        server.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


Opener = Callable[[str], Store]


@pytest.fixture(params=STORES)
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens a migrated database by a name; the same name is the same database, through a connection of its own."""
    opened: list[Store] = []
    urls: dict[str, str] = {}

    def open_one(name: str) -> Store:
        store: Store
        if request.param == "psycopg":
            if name not in urls:
                urls[name] = request.getfixturevalue("new_schema")()
            store = PostgreSQL(urls[name])
        elif request.param == "aiosqlite":
            store = OnALoop(AsyncSQLite(tmp_path / f"{name}.db"))
        else:
            store = SQLite(tmp_path / f"{name}.db")
        opened.append(store)
        store.migrate()
        return store

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Opener) -> Store:
    return open_store("own")


def deploy(store: Store) -> None:
    """The database as a deployment leaves it: migrated and empty, with what the tests' consumer shows."""
    store.migrate()
    store.transact(_create_shown())


def _create_shown() -> Steps[None]:
    yield Statement("CREATE TABLE shown (event TEXT NOT NULL)")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A directory with two databases, of a worker and of a consumer."""
    for name in ("agent.db", "dashboard.db"):
        with closing(SQLite(tmp_path / name)) as database:
            deploy(database)
    return tmp_path


@pytest.fixture(scope="session")
def templates(server: psycopg.Connection[tuple[object, ...]]) -> Iterator[list[str]]:
    """URLs of two PostgreSQL databases of the same kind; each exploration gets copies."""
    names = [f"reference_{name}_{os.getpid()}" for name in ("agent", "dashboard")]
    address = urlsplit(os.environ.get("ONCE_POSTGRESQL_URL", POSTGRESQL_URL))
    urls = [urlunsplit(address._replace(path=f"/{name}")) for name in names]
    try:
        for name, url in zip(names, urls, strict=True):
            server.execute(f"CREATE DATABASE {name}".encode())
            with closing(PostgreSQL(url)) as database:
                deploy(database)
        yield urls
    finally:
        for name in names:
            server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
