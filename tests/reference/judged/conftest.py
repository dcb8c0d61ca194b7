"""A database for each judged test, on each store, and the answer that each test declares."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import closing

import pytest

from pytest_once import Once
from pytest_once.reference.databases import AsyncSQLite, PostgreSQL, SQLite
from tests.reference.conftest import ANSWER, STORES, OnALoop, Store, deploy


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    explored = dict(report.user_properties).get("once")
    marker = item.get_closest_marker(ANSWER)
    if report.when == "call" and report.passed and explored:
        found = json.loads(str(explored))
        answer = (found["verdict"], found["coverage"])
        if marker is None or answer != (*marker.args, "exhausted"):
            report.outcome = "failed"
            report.longrepr = f"declared: {marker and marker.args}; found: {answer}"
    return report


@pytest.fixture(scope="session", params=STORES)
def deployed(request: pytest.FixtureRequest) -> str:
    """Which store; for psycopg the URL of the template. Wider than a test, so not made anew in each incarnation."""
    if request.param == "psycopg":
        urls: list[str] = request.getfixturevalue("templates")
        return urls[0]
    return str(request.param)


@pytest.fixture
def once(once: Once) -> Once:
    """With a database where the first incarnation starts, as a deployment leaves it."""
    with closing(SQLite(once.path / "agent.db")) as database:
        deploy(database)
    return once


@pytest.fixture
def database(once: Once, deployed: str) -> Iterator[Store]:
    """Opened by each incarnation for itself."""
    opened: Store
    if deployed == "sqlite3":
        opened = SQLite(once.path / "agent.db")
    elif deployed == "aiosqlite":
        opened = OnALoop(AsyncSQLite(once.path / "agent.db"))
    else:
        opened = PostgreSQL(once.track(deployed))
    yield opened
    opened.close()
