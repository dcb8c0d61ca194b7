"""Bookkeeping that fails: each fault of a SQLite change, in every form, with what it raises and leaves behind."""

from __future__ import annotations

import asyncio
import importlib.util
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pytest_once.boundaries import announce, sqlite
from pytest_once.boundaries.sqlite_faults import store_error
from pytest_once.faults import COMMIT_UNKNOWN, STORE_BUSY, STORE_FAULTS, STORE_FULL, STORE_READONLY
from tests.boundaries.recording import Recording, recorded

INSERT = "INSERT INTO tasks(name) VALUES ('a')"
RAISED = {
    STORE_BUSY: ["OperationalError", "database is locked", sqlite3.SQLITE_BUSY, "SQLITE_BUSY"],
    STORE_FULL: ["OperationalError", "database or disk is full", sqlite3.SQLITE_FULL, "SQLITE_FULL"],
    STORE_READONLY: [
        "OperationalError",
        "attempt to write a readonly database",
        sqlite3.SQLITE_READONLY,
        "SQLITE_READONLY",
    ],
    COMMIT_UNKNOWN: ["OperationalError", "disk I/O error", sqlite3.SQLITE_IOERR, "SQLITE_IOERR"],
}


@pytest.fixture
def db(tmp_path: Path) -> Path:
    file = tmp_path / "agent.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE tasks(id INTEGER PRIMARY KEY, name TEXT)")
    return file


def rows(file: Path) -> int:
    """How many tasks another process sees now."""
    with closing(sqlite3.connect(file)) as connection:
        return int(connection.execute("SELECT count(*) FROM tasks").fetchone()[0])


def told(error: sqlite3.Error) -> list[Any]:
    return [type(error).__name__, str(error), error.sqlite_errorcode, error.sqlite_errorname]


def raised_by(act: Callable[[], Any]) -> list[Any] | None:
    try:
        act()
    except sqlite3.Error as error:
        return told(error)
    return None


def failing(body: Callable[[], Any], fault: str, file: Path, at: str = "") -> Recording:
    """Run the body in a child whose first change that can fail (with `at` in its target) does."""

    def then() -> Any:
        result = body()
        announce("point", "after")
        return result

    recording = recorded(
        then, install=lambda: sqlite.install([file.parent], []), look=lambda: rows(file), fault=fault, at=at
    )
    assert recording.error is None
    return recording


# Transactions


def commit_method(connection: sqlite3.Connection) -> None:
    connection.execute(INSERT)
    connection.commit()


def with_connection(connection: sqlite3.Connection) -> None:
    with connection:
        connection.execute(INSERT)


def explicit_commit(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(INSERT)
    connection.execute("COMMIT")


def end_with_cursor(connection: sqlite3.Connection) -> None:
    cursor = connection.cursor()
    cursor.execute("BEGIN")
    cursor.executemany("INSERT INTO tasks(name) VALUES (?)", [("a",)])
    cursor.execute("END TRANSACTION")


def script(connection: sqlite3.Connection) -> None:
    connection.executescript(f"BEGIN; {INSERT}; COMMIT; INSERT INTO tasks(name) VALUES ('b');")


def before_a_script(connection: sqlite3.Connection) -> None:
    connection.execute(INSERT)
    connection.executescript("INSERT INTO tasks(name) VALUES ('b');")


def outermost_release(connection: sqlite3.Connection) -> None:
    connection.execute("SAVEPOINT one")
    connection.execute(INSERT)
    connection.execute("RELEASE one")


def returning(connection: sqlite3.Connection) -> None:
    with connection:
        assert connection.execute(INSERT + " RETURNING name").fetchone() == ("a",)


TRANSACTIONS = [
    commit_method,
    with_connection,
    explicit_commit,
    end_with_cursor,
    script,
    before_a_script,
    outermost_release,
    returning,
]
ROLLS_BACK_ITSELF = (with_connection, returning)
"""`with connection` rolls back when its commit fails, whatever the reason."""


@pytest.mark.parametrize("fault", STORE_FAULTS)
@pytest.mark.parametrize("form", TRANSACTIONS)
def test_a_commit_fails_as_ordered_and_leaves_what_sqlite_leaves(
    form: Callable[[sqlite3.Connection], None], fault: str, db: Path
) -> None:
    """Busy keeps the transaction open, full and read-only roll it back, unknown has committed it."""

    def body() -> list[Any]:
        connection = sqlite3.connect(db)
        return [raised_by(lambda: form(connection)), connection.in_transaction]

    recording = failing(body, fault, db)

    assert [fired for _, fired in recording.fired()] == [fault]
    assert recording.passed[0].faults == list(STORE_FAULTS)
    open_afterwards = fault == STORE_BUSY and form not in ROLLS_BACK_ITSELF
    assert recording.result == [RAISED[fault], open_afterwards]
    applied = 1 if fault == COMMIT_UNKNOWN else 0
    assert [seen for _, seen in recording.seen()] == [0, applied]
    assert rows(db) == applied


@pytest.mark.parametrize("form", [form for form in TRANSACTIONS if form not in ROLLS_BACK_ITSELF])
def test_a_busy_commit_can_be_tried_again(form: Callable[[sqlite3.Connection], None], db: Path) -> None:
    """As with a real lock: the transaction waits for its second COMMIT, which is a boundary of its own."""

    def body() -> list[Any]:
        connection = sqlite3.connect(db)
        error = raised_by(lambda: form(connection))
        connection.commit()
        return [error, connection.in_transaction]

    recording = failing(body, STORE_BUSY, db)

    assert recording.result == [RAISED[STORE_BUSY], False]
    first, second, after = recording.passed
    assert (second.target, second.seen, second.faults) == ("agent.db COMMIT (tasks)", 0, list(STORE_FAULTS))
    assert (first.ordered, after.seen) == (STORE_BUSY, 1)


@pytest.mark.parametrize("autocommit", [None, False, True])
@pytest.mark.parametrize("form", [commit_method, with_connection])
def test_a_busy_commit_leaves_the_connection_as_a_real_lock_does(
    form: Callable[[sqlite3.Connection], None], autocommit: bool | None, db: Path
) -> None:
    """What is imitated is what the interpreter at hand does, with each of its transaction controls."""
    if autocommit is not None and sys.version_info < (3, 12):
        pytest.skip("autocommit= came with 3.12")
    named: Any = {} if autocommit is None else {"autocommit": autocommit}

    def body() -> list[Any]:
        with closing(sqlite3.connect(db, timeout=0, **named)) as connection:
            if autocommit:
                connection.execute("BEGIN")
            return [raised_by(lambda: form(connection)), connection.in_transaction]

    with closing(sqlite3.connect(db, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM tasks").fetchall()
        real = body()
        reader.execute("ROLLBACK")

    imitated = failing(body, STORE_BUSY, db)

    if autocommit:  # commit() and `with` do nothing there
        assert (real, imitated.result, imitated.fired()) == ([None, True], [None, True], [])
    else:
        assert real == imitated.result
        assert real[0] == RAISED[STORE_BUSY]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="autocommit= came with 3.12")
@pytest.mark.parametrize("fault", [STORE_FULL, COMMIT_UNKNOWN])
@pytest.mark.parametrize("form", [commit_method, with_connection])
def test_a_failed_commit_begins_no_further_transaction(
    form: Callable[[sqlite3.Connection], None], fault: str, db: Path
) -> None:
    """autocommit=False begins one after each commit, but sqlite3 does not come to it when the COMMIT has failed."""

    def body() -> list[Any]:
        named: Any = {"autocommit": False}
        connection = sqlite3.connect(db, **named)
        return [raised_by(lambda: form(connection)), connection.in_transaction]

    recording = failing(body, fault, db)

    assert recording.result == [RAISED[fault], False]
    assert rows(db) == (fault == COMMIT_UNKNOWN)


# Statements that commit by themselves


@pytest.mark.parametrize("fault", STORE_FAULTS)
@pytest.mark.parametrize(
    ("sql", "question", "before", "after"),
    [
        (INSERT, "SELECT count(*) FROM tasks", 0, 1),
        ("WITH t(n) AS (SELECT 'a') INSERT INTO tasks(name) SELECT n FROM t", "SELECT count(*) FROM tasks", 0, 1),
        ("CREATE TABLE outbox(a)", "SELECT count(*) FROM sqlite_master WHERE name = 'outbox'", 0, 1),
        ("CREATE INDEX i ON tasks(name)", "SELECT count(*) FROM sqlite_master WHERE name = 'i'", 0, 1),
        ("ALTER TABLE tasks ADD COLUMN b", "SELECT count(*) FROM pragma_table_info('tasks')", 2, 3),
        ("PRAGMA user_version = 3", "PRAGMA user_version", 0, 3),
        ("ANALYZE", "SELECT count(*) FROM sqlite_master WHERE name = 'sqlite_stat1'", 0, 1),
        ("VACUUM", "SELECT 0", 0, 0),
    ],
)
def test_a_statement_fails_as_ordered(sql: str, question: str, before: int, after: int, fault: str, db: Path) -> None:
    """In autocommit mode the statement is the commit; a migration's steps are of this kind."""

    def body() -> list[Any]:
        connection = sqlite3.connect(db, isolation_level=None)
        return [raised_by(lambda: connection.execute(sql)), connection.in_transaction]

    recording = failing(body, fault, db)

    assert [fired for _, fired in recording.fired()] == [fault]
    assert recording.result == [RAISED[fault], False]
    with closing(sqlite3.connect(db)) as connection:
        assert connection.execute(question).fetchone()[0] == (after if fault == COMMIT_UNKNOWN else before)


def test_a_failed_statement_disturbs_no_loop_over_rows_of_its_connection(db: Path) -> None:
    """A worker writes while it reads on; a lock on the write ends the write, not the reading."""
    with closing(sqlite3.connect(db)) as connection, connection:
        connection.executemany("INSERT INTO tasks(name) VALUES (?)", [("a",), ("b",), ("c",)])

    def body() -> list[Any]:
        connection = sqlite3.connect(db, isolation_level=None)
        seen = []
        for (task,) in connection.execute("SELECT id FROM tasks ORDER BY id"):
            seen.append([task, raised_by(lambda: connection.execute("UPDATE tasks SET name = 'z' WHERE id = 1"))])
        return seen

    assert failing(body, STORE_BUSY, db).result == [[1, RAISED[STORE_BUSY]], [2, None], [3, None]]


def test_triggers_are_part_of_the_statement_that_fails(db: Path) -> None:
    """SQLite traces the statement again for each, which is no second change."""
    with closing(sqlite3.connect(db)) as connection, connection:
        connection.execute("CREATE TABLE log(a)")
        connection.execute("CREATE TRIGGER t AFTER INSERT ON tasks BEGIN INSERT INTO log VALUES (1); END")

    def body() -> Any:
        connection = sqlite3.connect(db, isolation_level=None)
        error = raised_by(lambda: connection.execute("INSERT INTO tasks(name) VALUES ('a'), ('b')"))
        return [error, connection.execute("SELECT count(*) FROM log").fetchone()[0]]

    assert failing(body, COMMIT_UNKNOWN, db).result == [RAISED[COMMIT_UNKNOWN], 2]
    assert failing(body, STORE_FULL, db).result == [RAISED[STORE_FULL], 2]


@pytest.mark.parametrize("fault", STORE_FAULTS)
def test_many_rows_end_with_the_one_that_fails(fault: str, db: Path) -> None:
    """Rows before it are durable, it is or is not, and those after it are never tried."""

    def body() -> Any:
        connection = sqlite3.connect(db, isolation_level=None)
        many = [("a",), ("b",), ("c",)]
        error = raised_by(lambda: connection.executemany("INSERT INTO tasks(name) VALUES (?)", many))
        return [error, connection.in_transaction]

    recording = failing(body, fault, db)

    assert recording.result == [RAISED[fault], False]
    assert recording.targets() == ["agent.db INSERT INTO tasks", "after"]
    assert rows(db) == (fault == COMMIT_UNKNOWN)


@pytest.mark.parametrize("fault", STORE_FAULTS)
def test_a_script_ends_with_the_statement_that_fails(fault: str, db: Path) -> None:
    """Also when what follows would begin and commit a transaction of its own."""

    def body() -> Any:
        connection = sqlite3.connect(db)
        text = f"{INSERT}; BEGIN; INSERT INTO tasks(name) VALUES ('b'); COMMIT; INSERT INTO tasks(name) VALUES ('c');"
        return [raised_by(lambda: connection.executescript(text)), connection.in_transaction]

    recording = failing(body, fault, db)

    assert recording.result == [RAISED[fault], False]
    assert recording.targets() == ["agent.db INSERT INTO tasks", "after"]
    assert rows(db) == (fault == COMMIT_UNKNOWN)


@pytest.mark.parametrize("fault", [STORE_BUSY, STORE_FULL, STORE_READONLY])
def test_an_autocommitting_returning_fails_before_its_first_row(fault: str, db: Path) -> None:
    """It cannot get the lock, or the room, that it needs to begin; its cursor stays usable."""

    def body() -> Any:
        connection = sqlite3.connect(db, isolation_level=None)
        cursor = connection.cursor()
        error = raised_by(lambda: cursor.execute(INSERT + " RETURNING id"))
        left = [connection.in_transaction, rows(db)]
        again = cursor.execute(INSERT + " RETURNING name").fetchall()
        return [error, *left, again]

    assert failing(body, fault, db).result == [RAISED[fault], False, 0, [["a"]]]


TAKES: dict[str, Callable[[sqlite3.Cursor], Any]] = {
    "fetchone": lambda cursor: cursor.fetchone(),
    "fetchmany": lambda cursor: cursor.fetchmany(2),
    "fetchall": lambda cursor: cursor.fetchall(),
    "next": lambda cursor: next(cursor),
    "loop": lambda cursor: list(cursor),
}


@pytest.mark.parametrize("take", TAKES)
@pytest.mark.parametrize("fault", [STORE_FULL, COMMIT_UNKNOWN])
def test_an_autocommitting_returning_fails_with_its_commit(fault: str, take: str, db: Path) -> None:
    """Which happens when its rows are taken, all of them."""

    def body() -> Any:
        connection = sqlite3.connect(db, isolation_level=None)
        cursor = connection.execute("INSERT INTO tasks(name) VALUES ('a'), ('b') RETURNING name")
        error = raised_by(lambda: TAKES[take](cursor))
        return [error, connection.in_transaction]

    recording = failing(body, fault, db, at="(returned)")

    assert recording.result == [RAISED[fault], False]
    assert recording.fired() == [("agent.db INSERT INTO tasks (returned)", fault)]
    assert rows(db) == (2 if fault == COMMIT_UNKNOWN else 0)


def test_a_statement_that_is_wrong_by_itself_says_so(db: Path) -> None:
    """Nothing was applied, so nothing is unknown about it."""

    with closing(sqlite3.connect(db, isolation_level=None)) as before:
        before.execute(INSERT)

    def body() -> Any:
        connection = sqlite3.connect(db, isolation_level=None)
        return raised_by(lambda: connection.execute("INSERT INTO tasks(id) VALUES (1)"))

    recording = failing(body, COMMIT_UNKNOWN, db)

    assert recording.fired() == [("agent.db INSERT INTO tasks", COMMIT_UNKNOWN)]
    assert recording.result[0] == "IntegrityError"


# Through libraries


def told_by_driver(error: BaseException | None) -> list[Any]:
    assert isinstance(error, sqlite3.Error)
    return told(error)


def through_aiosqlite(file: Path) -> list[Any]:
    import aiosqlite

    async def main() -> list[Any]:
        async with aiosqlite.connect(file) as connection:
            await connection.execute(INSERT)
            try:
                await connection.commit()
            except sqlite3.Error as error:
                return [told(error), connection.in_transaction]
            return []

    return asyncio.run(main())


def through_sqlalchemy(file: Path) -> list[Any]:
    from sqlalchemy import create_engine, text
    from sqlalchemy.exc import OperationalError

    try:
        with create_engine(f"sqlite:///{file}").begin() as connection:
            connection.execute(text(INSERT))
    except OperationalError as error:
        return [told_by_driver(error.orig), False]
    return []


def through_the_orm(file: Path) -> list[Any]:
    from sqlalchemy import create_engine, text
    from sqlalchemy.exc import OperationalError
    from sqlalchemy.orm import Session

    with Session(create_engine(f"sqlite:///{file}")) as session:
        session.execute(text(INSERT))
        try:
            session.commit()
        except OperationalError as error:
            session.rollback()
            return [told_by_driver(error.orig), False]
    return []


def through_async_sqlalchemy(file: Path) -> list[Any]:
    from sqlalchemy import text
    from sqlalchemy.exc import OperationalError
    from sqlalchemy.ext.asyncio import create_async_engine

    async def main() -> list[Any]:
        engine = create_async_engine(f"sqlite+aiosqlite:///{file}")
        try:
            async with engine.begin() as connection:
                await connection.execute(text(INSERT))
        except OperationalError as error:
            return [told_by_driver(error.orig), False]
        finally:
            await engine.dispose()
        return []

    return asyncio.run(main())


needs_sqlalchemy = pytest.mark.skipif(importlib.util.find_spec("sqlalchemy") is None, reason="it is not installed")


@pytest.mark.parametrize("fault", STORE_FAULTS)
@pytest.mark.parametrize(
    "form",
    [
        through_aiosqlite,
        pytest.param(through_sqlalchemy, marks=needs_sqlalchemy),
        pytest.param(through_the_orm, marks=needs_sqlalchemy),
        pytest.param(through_async_sqlalchemy, marks=needs_sqlalchemy),
    ],
)
def test_libraries_pass_the_failure_on(form: Callable[[Path], list[Any]], fault: str, db: Path) -> None:
    """With the driver's error inside their own."""
    recording = failing(lambda: form(db), fault, db)

    assert recording.fired() == [("agent.db COMMIT (tasks)", fault)]
    assert recording.result == [RAISED[fault], fault == STORE_BUSY and form is through_aiosqlite]
    assert rows(db) == (fault == COMMIT_UNKNOWN)


def test_a_users_own_connection_class_takes_part(db: Path) -> None:
    """Its commit() sees the error too, and may swallow it."""

    def body() -> list[Any]:
        seen: list[Any] = []

        class Own(sqlite3.Connection):
            def commit(self) -> None:
                seen.append(self.in_transaction)
                super().commit()

        connection = sqlite3.connect(db, factory=Own)
        connection.execute(INSERT)
        return [raised_by(connection.commit), seen]

    assert failing(body, STORE_FULL, db).result == [RAISED[STORE_FULL], [True]]


def test_a_users_own_connection_class_may_try_again(db: Path) -> None:
    """It stands between the code and sqlite3, so a busy database is for it to deal with, once for each time."""

    def body() -> list[Any]:
        seen: list[str] = []

        class Patient(sqlite3.Connection):
            def patiently(self, act: Callable[[], Any]) -> Any:
                try:
                    return act()
                except sqlite3.OperationalError as error:
                    seen.append(error.sqlite_errorname)
                    return act()

            def execute(self, *arguments: Any) -> Any:
                parent: Any = super()
                return self.patiently(lambda: parent.execute(*arguments))

            def commit(self) -> None:
                self.patiently(super().commit)

        statements = sqlite3.connect(db, factory=Patient, isolation_level=None)
        statements.execute(INSERT)
        transactions = sqlite3.connect(db, factory=Patient)
        transactions.execute(INSERT)
        transactions.commit()
        return seen

    insert, commit = "agent.db INSERT INTO tasks", "agent.db COMMIT (tasks)"
    first = failing(body, STORE_BUSY, db)
    assert (first.result, first.targets()) == (["SQLITE_BUSY"], [insert, insert, commit, "after"])
    second = failing(body, STORE_BUSY, db, at="COMMIT")
    assert (second.result, second.targets()) == (["SQLITE_BUSY"], [insert, commit, commit, "after"])
    assert rows(db) == 4


def test_what_cannot_fail_visibly_offers_no_fault(db: Path) -> None:
    """A connection that only a function made has no method of ours to raise in."""

    def body() -> None:
        maker: Any = lambda *arguments, **named: sqlite3.Connection(*arguments, **named)  # noqa: E731
        connection = sqlite3.connect(db, factory=maker)
        with connection:
            connection.execute(INSERT)
        sqlite3.connect(db, isolation_level=None).execute("PRAGMA journal_mode = WAL")

    recording = failing(body, STORE_FULL, db)

    assert [(one.target, one.faults) for one in recording.passed[:-1]] == [
        ("agent.db COMMIT (tasks)", []),
        ("agent.db PRAGMA journal_mode", []),
    ]


def test_the_users_trace_callback_sees_only_the_users_statements(db: Path) -> None:
    """How a failure is brought about is nobody's business."""

    def body() -> list[str]:
        traced: list[str] = []
        for level in ("DEFERRED", None):
            connection = sqlite3.connect(db, isolation_level=level)
            connection.set_trace_callback(traced.append)
            raised_by(lambda connection=connection: with_connection(connection))  # type: ignore[misc]
        return traced

    assert failing(body, STORE_BUSY, db).result == ["BEGIN DEFERRED", INSERT, "COMMIT", "ROLLBACK", INSERT]


@pytest.mark.parametrize("fault", STORE_FAULTS)
def test_an_error_carries_what_the_stdlib_gives_it(fault: str) -> None:
    """Code decides by the code, or by the text."""
    assert told(store_error(fault)) == RAISED[fault]
