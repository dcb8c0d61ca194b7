from __future__ import annotations

import asyncio
import gc
import os
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from sqlite3 import connect as early_connect
from typing import Any

import pytest

from pytest_once.boundaries import announce, rebinding, sqlite, sqlite_inherited
from pytest_once.clock import Clock
from pytest_once.site import Site
from tests.boundaries.recording import Recording, recorded

Form = Callable[[Path], Any]
SCHEMA = "CREATE TABLE tasks(id INTEGER PRIMARY KEY, name TEXT, at TEXT DEFAULT CURRENT_TIMESTAMP)"


@pytest.fixture
def db(tmp_path: Path) -> Path:
    file = tmp_path / "agent.db"
    connection = sqlite3.connect(file)
    connection.execute(SCHEMA)
    connection.close()
    return file


def rows(file: Path) -> int:
    """How many tasks another process sees now."""
    connection = sqlite3.connect(file)
    try:
        return int(connection.execute("SELECT count(*) FROM tasks").fetchone()[0])
    finally:
        connection.close()


def run(form: Form, file: Path) -> Recording:
    early = rebinding.references(*sqlite.originals())

    def body() -> Any:
        result = form(file)
        announce("point", "after")
        return result

    return recorded(body, install=lambda: sqlite.install([file.parent], early), look=lambda: rows(file))


INSERT = "INSERT INTO tasks(name) VALUES ('a')"


def commit_method(file: Path) -> None:
    connection = sqlite3.connect(file)
    connection.execute(INSERT)
    connection.commit()


def with_connection(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("INSERT INTO tasks(name) VALUES (?)", ("a",))


def explicit_commit(file: Path) -> None:
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(INSERT)
    connection.execute("END TRANSACTION")


def script(file: Path) -> None:
    sqlite3.connect(file).executescript(f"BEGIN; {INSERT}; COMMIT;")


def early_import(file: Path) -> None:
    with early_connect(file) as connection:
        connection.cursor().executemany("INSERT INTO tasks(name) VALUES (?)", [("a",)])


def dbapi2(file: Path) -> None:
    connection = sqlite3.dbapi2.connect(str(file))
    connection.execute(INSERT)
    connection.commit()


def uri(file: Path) -> None:
    with sqlite3.connect(f"file:{file}?mode=rw", uri=True) as connection:
        connection.execute(INSERT)


def attached(file: Path) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("ATTACH ? AS disk", (str(file),))
    with connection:
        connection.execute("INSERT INTO disk.tasks(name) VALUES ('a')")


def factory(file: Path) -> None:
    class Own(sqlite3.Connection):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self.execute("PRAGMA foreign_keys=ON")

        def add(self) -> None:
            with self:
                self.execute(INSERT)

    connection = sqlite3.connect(file, factory=Own)
    assert isinstance(connection, Own)
    assert type(connection).__name__ == "Own"
    connection.add()


def factory_function(file: Path) -> None:
    maker: Any = lambda *arguments, **named: sqlite3.Connection(*arguments, **named)  # noqa: E731
    connection = sqlite3.connect(file, factory=maker)
    with connection:
        connection.execute(INSERT)


def inside_savepoints(file: Path) -> None:
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("SAVEPOINT one")
    connection.execute("SAVEPOINT two")
    connection.execute(INSERT)
    connection.execute("RELEASE two")
    connection.execute("RELEASE SAVEPOINT one")


def through_aiosqlite(file: Path) -> None:
    import aiosqlite

    async def main() -> None:
        async with aiosqlite.connect(file) as connection:
            await connection.execute(INSERT)
            await connection.commit()

    asyncio.run(main())


def through_sqlalchemy(file: Path) -> None:
    from sqlalchemy import create_engine, text

    with create_engine(f"sqlite:///{file}").begin() as connection:
        connection.execute(text(INSERT))


def through_async_sqlalchemy(file: Path) -> None:
    from sqlalchemy import text
    from sqlalchemy.ext.asyncio import create_async_engine

    async def main() -> None:
        engine = create_async_engine(f"sqlite+aiosqlite:///{file}")
        async with engine.begin() as connection:
            await connection.execute(text(INSERT))
        await engine.dispose()

    asyncio.run(main())


TRANSACTIONS = [
    commit_method,
    with_connection,
    explicit_commit,
    script,
    early_import,
    dbapi2,
    uri,
    factory,
    factory_function,
    through_aiosqlite,
    through_sqlalchemy,
    through_async_sqlalchemy,
]


@pytest.mark.parametrize("form", TRANSACTIONS)
def test_a_commit_is_announced_before_another_process_sees_the_row(form: Form, db: Path) -> None:
    """A crash at the announcement must find the old state, a crash at the next one the new."""
    recording = run(form, db)

    assert recording.error is None
    assert recording.seen() == [("agent.db COMMIT (tasks)", 0), ("after", 1)]
    assert recording.passed[0].kind == "sqlite"


@pytest.mark.parametrize("form", TRANSACTIONS)
def test_the_announced_line_is_the_users(form: Form, db: Path) -> None:
    """A report that names a library's line, or none, is of no use."""
    line = run(form, db).passed[0].line

    assert line, "no line of user code was found"
    assert any(word in line for word in ("commit", "with ", "END", "INSERT", "COMMIT"))


def test_with_several_tasks_the_line_is_that_of_the_one_that_waits(db: Path) -> None:
    """aiosqlite commits in a thread of its own, in which there is no user code."""
    import aiosqlite

    async def first(connection: aiosqlite.Connection) -> None:
        await connection.execute(INSERT)
        await connection.commit()  # the first

    async def second() -> None:
        await asyncio.Event().wait()

    def form(file: Path) -> None:
        async def main() -> None:
            others = [asyncio.create_task(second()) for _ in range(3)]
            async with aiosqlite.connect(file) as connection:
                await asyncio.gather(asyncio.create_task(first(connection)))
            for other in others:
                other.cancel()

        asyncio.run(main())

    assert run(form, db).passed[0].line == "await connection.commit()  # the first"


def test_an_attached_file_is_announced_although_the_main_database_is_in_memory(db: Path) -> None:
    """ATTACH makes a harmless connection one that changes the world."""
    assert run(attached, db).seen() == [("agent.db COMMIT (disk.tasks)", 0), ("after", 1)]


def test_only_the_outermost_release_is_a_boundary(db: Path) -> None:
    """Inner savepoints change nothing that survives a crash."""
    assert run(inside_savepoints, db).seen() == [("agent.db RELEASE (tasks)", 0), ("after", 1)]


@pytest.mark.parametrize(
    ("sql", "target"),
    [
        (INSERT, "INSERT INTO tasks"),
        ("INSERT OR IGNORE INTO \"tasks\"(name) VALUES ('a')", "INSERT INTO tasks"),
        ("/* why */ -- and how\n insert into tasks(name) values ('a')", "INSERT INTO tasks"),
        ("REPLACE INTO tasks(id) VALUES (1)", "REPLACE INTO tasks"),
        ("WITH t(n) AS (SELECT 'a') INSERT INTO tasks(name) SELECT n FROM t", "WITH INSERT INTO tasks"),
        ("INSERT INTO main.tasks(name) SELECT 'DELETE FROM x'", "INSERT INTO main.tasks"),
    ],
)
def test_a_statement_outside_a_transaction_is_its_own_commit(sql: str, target: str, db: Path) -> None:
    """In autocommit mode no COMMIT ever comes."""

    def form(file: Path) -> None:
        sqlite3.connect(file, isolation_level=None).execute(sql)

    assert run(form, db).seen() == [(f"agent.db {target}", 0), ("after", 1)]


@pytest.mark.parametrize(
    ("sql", "target"),
    [
        ("CREATE TABLE IF NOT EXISTS other(a)", "CREATE TABLE other"),
        ("CREATE UNIQUE INDEX i ON tasks(name)", "CREATE INDEX i"),
        ("ALTER TABLE tasks ADD COLUMN b", "ALTER TABLE tasks"),
        ("UPDATE tasks SET name='b'", "UPDATE tasks"),
        ("DELETE FROM tasks", "DELETE FROM tasks"),
        ("PRAGMA user_version = 3", "PRAGMA user_version"),
        ("PRAGMA journal_mode(WAL)", "PRAGMA journal_mode"),
        ("VACUUM", "VACUUM"),
        ("ANALYZE", "ANALYZE"),
    ],
)
def test_schema_and_maintenance_statements_are_announced(sql: str, target: str, db: Path) -> None:
    """A migration that dies half way is one of the states to restart from."""

    def form(file: Path) -> None:
        sqlite3.connect(file, isolation_level=None).execute(sql)

    assert run(form, db).targets() == [f"agent.db {target}", "after"]


def test_what_changes_nothing_durable_is_silent(db: Path) -> None:
    """Every needless boundary multiplies the states to search."""

    def form(file: Path) -> None:
        connection = sqlite3.connect(file)
        connection.execute("SELECT replace('INSERT INTO tasks', 'a', 'b')").fetchall()
        connection.execute("WITH t AS (SELECT 'DELETE FROM tasks' AS n) SELECT n FROM t").fetchall()
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA user_version").fetchall()
        connection.execute("EXPLAIN DELETE FROM tasks").fetchall()
        connection.execute(INSERT)
        connection.rollback()
        connection.commit()
        connection.execute("BEGIN")
        connection.execute("SELECT 1").fetchall()
        connection.execute("COMMIT")
        memory = sqlite3.connect(":memory:")
        memory.execute("CREATE TABLE t(a)")
        with memory:
            memory.execute("INSERT INTO t VALUES (1)")

    assert run(form, db).targets() == ["after"]


def test_a_commit_names_all_tables_of_its_transaction(db: Path) -> None:
    """State change and outbox row together, or not: the report must show which."""

    def form(file: Path) -> None:
        connection = sqlite3.connect(file)
        connection.execute("CREATE TABLE outbox(a)")
        with connection:
            connection.execute(INSERT)
            connection.execute("INSERT INTO outbox VALUES ('x')")
            connection.execute("UPDATE tasks SET name = 'b'")

    assert run(form, db).targets() == [
        "agent.db CREATE TABLE outbox",
        "agent.db COMMIT (tasks, outbox)",
        "after",
    ]


def test_autocommit_returning_is_announced_again_before_its_row_is_taken(db: Path) -> None:
    """SQLite commits it only then: what happens in between must not count as later than the commit."""

    def form(file: Path) -> Any:
        connection = sqlite3.connect(file, isolation_level=None)
        cursor = connection.execute(INSERT + " RETURNING id")
        announce("point", "between")
        return cursor.fetchone()

    recording = run(form, db)

    assert recording.result == [1]
    assert recording.seen() == [
        ("agent.db INSERT INTO tasks", 0),
        ("between", 0),
        ("agent.db INSERT INTO tasks (returned)", 0),
        ("after", 1),
    ]


def test_a_returning_statement_commits_with_its_last_row(db: Path) -> None:
    """While a loop over several rows works on the first, nothing of the statement is durable yet."""

    def form(file: Path) -> Any:
        connection = sqlite3.connect(file, isolation_level=None)
        taken = []
        for (name,) in connection.execute("INSERT INTO tasks(name) VALUES ('a'), ('b') RETURNING name"):
            announce("point", f"work on {name}")
            taken.append(name)
        return taken

    recording = run(form, db)

    assert recording.result == ["a", "b"]
    assert recording.seen() == [
        ("agent.db INSERT INTO tasks", 0),
        ("agent.db INSERT INTO tasks (returned)", 0),
        ("work on a", 0),
        ("agent.db INSERT INTO tasks (returned)", 0),
        ("work on b", 2),
        ("after", 2),
    ]


def test_triggers_do_not_multiply_a_boundary(db: Path) -> None:
    """SQLite traces the outer statement once more for every trigger it fires."""
    with sqlite3.connect(db) as connection:
        connection.execute("CREATE TABLE log(a)")
        connection.execute("CREATE TRIGGER t AFTER INSERT ON tasks BEGIN INSERT INTO log VALUES (1); END")
    connection.close()

    def form(file: Path) -> None:
        sqlite3.connect(file, isolation_level=None).execute("INSERT INTO tasks(name) VALUES ('a'), ('b')")

    assert run(form, db).seen() == [("agent.db INSERT INTO tasks", 0), ("after", 2)]


def test_each_row_of_executemany_outside_a_transaction_is_a_boundary(db: Path) -> None:
    """Each of them is durable on its own."""

    def form(file: Path) -> None:
        connection = sqlite3.connect(file, isolation_level=None)
        connection.executemany("INSERT INTO tasks(name) VALUES (?)", [("a",), ("b",)])

    insert = "agent.db INSERT INTO tasks"
    assert run(form, db).seen() == [(insert, 0), (insert, 1), ("after", 2)]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="autocommit= came with 3.12")
@pytest.mark.parametrize(("autocommit", "verb"), [(True, "INSERT INTO tasks"), (False, "COMMIT (tasks)")])
def test_the_autocommit_attribute_of_312_comes_through(autocommit: bool, verb: str, db: Path) -> None:
    """autocommit=False begins the next transaction by itself after each commit."""

    def form(file: Path) -> int:
        named: Any = {"autocommit": autocommit}
        connection = sqlite3.connect(file, **named)
        connection.execute(INSERT)
        connection.commit()
        return int(connection.execute("PRAGMA synchronous").fetchone()[0])

    recording = run(form, db)

    assert recording.seen() == [(f"agent.db {verb}", 0), ("after", 1)]
    assert recording.result == 0


def test_the_users_own_trace_callback_still_sees_every_statement(db: Path) -> None:
    """SQLite has one callback for each connection, and it is taken."""

    def form(file: Path) -> list[str]:
        connection = sqlite3.connect(file)
        traced: list[str] = []
        connection.set_trace_callback(traced.append)
        with connection:
            connection.execute(INSERT)
        connection.set_trace_callback(None)
        connection.execute("SELECT 1")
        return traced

    recording = run(form, db)

    assert recording.result == ["BEGIN ", INSERT, "COMMIT"]
    assert recording.targets() == ["agent.db COMMIT (tasks)", "after"]


def test_a_factory_that_writes_while_connecting_is_watched(db: Path) -> None:
    """Migrations live in such places."""

    class Migrating(sqlite3.Connection):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self.execute("CREATE TABLE outbox(a)")

    def form(file: Path) -> None:
        sqlite3.connect(file, factory=Migrating)

    assert run(form, db).targets() == ["agent.db CREATE TABLE outbox", "after"]


def test_a_dropped_connection_gives_up_its_locks(db: Path) -> None:
    """The trace callback must not keep alive what production code would lose."""

    def form(file: Path) -> int:
        connection = sqlite3.connect(file)
        connection.execute(INSERT)
        del connection
        gc.collect()
        return sqlite3.connect(file, timeout=0).execute("UPDATE tasks SET name = 'b'").rowcount

    recording = run(form, db)

    assert (recording.error, recording.result) == (None, 0)


def test_a_locked_database_does_not_delay_or_fail_the_connect(db: Path) -> None:
    """Turning syncs off reads the schema; connecting alone never does."""
    other = sqlite3.connect(db, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")

    def form(file: Path) -> int:
        connection = sqlite3.connect(file, timeout=7)
        return int(connection.execute("PRAGMA busy_timeout").fetchone()[0])

    early: list[Any] = []
    recording = recorded(lambda: form(db), install=lambda: sqlite.install([db.parent], early))
    other.close()

    assert recording.result == 7000


def test_connecting_turns_syncs_off_and_neither_fills_nor_locks_the_file(tmp_path: Path) -> None:
    """The picture at the first boundary must be what the code itself has made so far."""
    file = tmp_path / "new.db"

    def body() -> Any:
        connection = sqlite3.connect(file)
        return [
            connection.in_transaction,
            connection.total_changes,
            os.path.getsize(file),
            connection.execute("PRAGMA synchronous").fetchone()[0],
        ]

    recording = recorded(body, install=lambda: sqlite.install([tmp_path], []))

    assert recording.result == [False, 0, 0, 0]


def test_a_file_below_no_root_is_announced_by_name_and_remembered(db: Path, tmp_path: Path) -> None:
    """Its changes survive a crash and are not in the pictures: the controller has to know."""
    root = tmp_path / "root"
    root.mkdir()

    def body() -> list[str]:
        with sqlite3.connect(db) as connection:
            connection.execute(INSERT)
        return sqlite.outside

    recording = recorded(body, install=lambda: sqlite.install([root], []))

    assert recording.targets() == ["agent.db COMMIT (tasks)"]
    assert recording.result == [os.path.realpath(db)]


def test_a_boundary_that_cannot_be_announced_is_not_passed(db: Path) -> None:
    """sqlite3 swallows what a trace callback raises; the change must not happen unseen."""

    def look() -> Any:
        return rows(db)

    def body() -> None:
        def broken(*_arguments: Any, **_named: Any) -> None:
            raise RuntimeError("the controller is gone")

        vars(sqlite)["announce"] = broken
        with sqlite3.connect(db) as connection:
            connection.execute(INSERT)

    recording = recorded(body, install=lambda: sqlite.install([db.parent], []), look=look)

    assert os.waitstatus_to_exitcode(recording.status) == sqlite.EXIT_UNANNOUNCED
    assert rows(db) == 0


TIME_CASES = [
    "datetime('now')",
    "datetime()",
    "date('NOW', '+1 day')",
    "time()",
    "strftime('%Y-%m-%d %H:%M:%S', 'now')",
    "strftime('%Y')",
    "julianday('now')",
    "CAST(unixepoch() AS TEXT)",
    "CURRENT_TIMESTAMP",
    "CURRENT_DATE",
    "CURRENT_TIME",
]
FIXED_CASES = [
    "datetime('2024-02-30 10:11:12', '-1 month')",
    "date(0, 'unixepoch')",
    "date(2460000.5)",
    "datetime('nonsense')",
    "strftime('%f %j %w', '2024-01-01T01:02:03.456')",
    "strftime()",
    "julianday('2024-01-01')",
    "unixepoch('2024-01-01')",
    "date(NULL)",
    "time('2024-01-01 10:00', 'utc')",
]


def test_sql_time_follows_the_virtual_clock(db: Path) -> None:
    """Leases and timestamps kept in SQL must agree with those kept in Python, and replay."""

    def body() -> Any:
        clock = Clock()
        clock.install()
        connection = sqlite3.connect(db)
        before = [connection.execute(f"SELECT {sql}").fetchone()[0] for sql in TIME_CASES]
        connection.execute(INSERT)
        clock.advance(3600)
        late = connection.execute("SELECT datetime('now')").fetchone()[0]
        return [*before, connection.execute("SELECT at FROM tasks").fetchone()[0], late]

    result = recorded(body, install=lambda: sqlite.install([db.parent], [])).result

    assert result == [
        "2031-03-04 05:06:07",
        "2031-03-04 05:06:07",
        "2031-03-05",
        "05:06:07",
        "2031-03-04 05:06:07",
        "2031",
        pytest.approx(2462929.7125810185, abs=1e-8),
        "1930367167",
        "2031-03-04 05:06:07",
        "2031-03-04",
        "05:06:07",
        "2031-03-04 05:06:07",
        "2031-03-04 06:06:07",
    ]


@pytest.mark.skipif(sqlite3.sqlite_version_info < (3, 43), reason="timediff came with SQLite 3.43")
def test_a_difference_of_times_follows_the_virtual_clock(db: Path) -> None:
    """Either argument may be now."""

    def body() -> Any:
        Clock().install()
        question = "SELECT timediff('now', '2031-03-03 05:06:07'), timediff('2031-03-05 05:06:07', 'NOW')"
        return sqlite3.connect(db).execute(question).fetchone()

    day = "+0000-00-01 00:00:00.000"
    assert recorded(body, install=lambda: sqlite.install([db.parent], [])).result == [day, day]


STAMPED = (
    "CREATE TABLE stamped(a, at TEXT DEFAULT CURRENT_TIMESTAMP, until TEXT DEFAULT (datetime('now', '+60 seconds')))"
)
STAMP = "INSERT INTO stamped(a) VALUES (1)"
STAMPS = "SELECT at, until FROM stamped"


def stamped_by_a_script(file: Path) -> Any:
    connection = sqlite3.connect(file)
    connection.executescript(f"{STAMPED}; BEGIN; {STAMP}; COMMIT;")
    return connection.execute(STAMPS).fetchone()


def stamped_in_memory(file: Path) -> Any:
    connection = sqlite3.connect(":memory:")
    connection.execute(STAMPED)
    connection.execute(STAMP)
    return connection.execute(STAMPS).fetchone()


def stamped_by_a_trigger(file: Path) -> Any:
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE stamped(at, until)")
    values = "CURRENT_TIMESTAMP, datetime('now', '+1 minute')"
    connection.execute(f"CREATE TRIGGER t AFTER INSERT ON tasks BEGIN INSERT INTO stamped VALUES ({values}); END")
    connection.execute(INSERT)
    return connection.execute(STAMPS).fetchone()


def stamped_in_a_view(file: Path) -> Any:
    connection = sqlite3.connect(file)
    connection.execute("CREATE VIEW stamped AS SELECT CURRENT_TIMESTAMP AS at, datetime('now', '+1 minute') AS until")
    return connection.execute(STAMPS).fetchone()


def stamped_through_aiosqlite(file: Path) -> Any:
    import aiosqlite

    async def main() -> Any:
        async with aiosqlite.connect(file) as connection:
            await connection.execute(STAMPED)
            await connection.execute(STAMP)
            async with connection.execute(STAMPS) as cursor:
                return await cursor.fetchone()

    return asyncio.run(main())


def stamped_through_sqlalchemy(file: Path) -> Any:
    from sqlalchemy import create_engine, text

    with create_engine(f"sqlite:///{file}").begin() as connection:
        connection.execute(text(STAMPED))
        connection.execute(text(STAMP))
        return list(connection.execute(text(STAMPS)).one())


@pytest.mark.parametrize(
    "form",
    [
        stamped_by_a_script,
        stamped_in_memory,
        stamped_by_a_trigger,
        stamped_in_a_view,
        stamped_through_aiosqlite,
        stamped_through_sqlalchemy,
    ],
)
def test_instants_that_sqlite_fills_in_are_virtual_too(form: Form, db: Path) -> None:
    """Defaults, triggers and views: no Python is anywhere near them."""

    def body() -> Any:
        Clock().install()
        return form(db)

    recording = recorded(body, install=lambda: sqlite.install([db.parent], []))

    assert recording.error is None
    assert recording.result == ["2031-03-04 05:06:07", "2031-03-04 05:07:07"]


def test_a_lease_kept_in_sql_expires_while_python_sleeps(db: Path) -> None:
    """Both sides of a lease must live by one clock, and waiting for it must take no time."""

    def body() -> list[Any]:
        clock = Clock()
        clock.install()
        connection = sqlite3.connect(db, isolation_level=None)
        connection.execute("CREATE TABLE leases(until TEXT)")
        connection.execute("INSERT INTO leases VALUES (datetime('now', '+60 seconds'))")
        free = "SELECT count(*) FROM leases WHERE until <= datetime('now')"
        seen = [connection.execute(free).fetchone()[0]]
        for seconds in (59, 2):
            time.sleep(seconds)
            seen.append(connection.execute(free).fetchone()[0])
        return seen

    begun = time.monotonic()
    recording = recorded(body, install=lambda: sqlite.install([db.parent], []))

    assert (recording.error, recording.result) == (None, [0, 0, 1])
    assert time.monotonic() - begun < 10, "it waited"


def test_sql_time_functions_of_stored_values_are_sqlites_own(db: Path) -> None:
    """Only 'now' may change."""
    plain = sqlite3.connect(":memory:")
    expected = [plain.execute(f"SELECT {sql}").fetchone()[0] for sql in FIXED_CASES]
    plain.close()

    def body() -> Any:
        connection = sqlite3.connect(db)
        return [connection.execute(f"SELECT {sql}").fetchone()[0] for sql in FIXED_CASES]

    assert recorded(body, install=lambda: sqlite.install([db.parent], [])).result == expected


def test_an_index_on_a_date_of_a_column_still_works(db: Path) -> None:
    """With functions SQLite holds for random the whole schema could not be read."""
    with sqlite3.connect(db) as connection:
        connection.execute("CREATE INDEX day ON tasks(date(at))")
    connection.close()

    def form(file: Path) -> Any:
        with sqlite3.connect(file) as connection:
            connection.execute("INSERT INTO tasks(at) VALUES ('2024-05-06 07:08')")
        return connection.execute("SELECT count(*) FROM tasks WHERE date(at) = '2024-05-06'").fetchone()

    recording = run(form, db)

    assert (recording.error, recording.result) == (None, [1])


def test_use_of_a_connection_from_before_the_fork_is_reported(db: Path) -> None:
    """It shares the parent's locks: a restarted process would have opened its own."""
    connection = sqlite3.connect(db)
    memory = sqlite3.connect(":memory:")
    inherited = [one for one in sqlite_inherited.inherited_connections() if one.connection in (connection, memory)]
    assert [one.file for one in inherited] == [os.path.realpath(db)]
    reports: list[Any] = []

    def report(file: str, site: Site) -> None:
        reports.append([file, site.text])

    def body() -> Any:
        sqlite_inherited.watch_inherited(inherited, report)
        connection.execute("SELECT 1")
        return reports

    recording = recorded(body, install=lambda: sqlite.install([db.parent], []))
    connection.close()
    memory.close()

    assert recording.result == [[os.path.realpath(db), 'connection.execute("SELECT 1")']]
