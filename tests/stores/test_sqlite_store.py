"""A database's rows are what a process would read after SQLite's recovery, whatever its files look like."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from pytest_once.canonical import Naming, Row, canonical_rows, digest
from pytest_once.stores import sqlite as sqlite_store
from pytest_once.stores.directory import DirectoryStore
from pytest_once.stores.sqlite import JOURNAL_MAGIC, database_rows, super_journal_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "world"
    root.mkdir()
    return root


def execute(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(script)


def rows_of(root: Path) -> list[Row]:
    store = DirectoryStore(root)
    return store.rows(store.snapshot())


def digest_of(root: Path) -> str:
    return digest(canonical_rows(rows_of(root), Naming(), 0.0))


def table(rows: list[Row], place: str) -> list[tuple[object, ...]]:
    return [row.cells for row in rows if row.place == place]


@contextmanager
def writer(root: Path, script: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that runs the script with `connection` and `root`, then waits with everything open."""
    program = (
        "import sqlite3, sys, pathlib\n"
        "root = pathlib.Path(sys.argv[1])\n"
        "connection = sqlite3.connect(root / 'agent.db', isolation_level=None)\n"
        f"{script}\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


SPILLING = """
connection.executescript("PRAGMA synchronous=FULL; PRAGMA cache_size=5; PRAGMA cache_spill=1; BEGIN")
connection.execute("UPDATE t SET v = 'changed'")
connection.executemany("INSERT INTO t(v) VALUES (?)", [("x" * 3000,)] * 60)
"""


def test_rows_of_every_kind_of_table(root: Path) -> None:
    """Schema, pragmas, rowid tables, WITHOUT ROWID, shadowed rowids, sequences, generated columns."""
    execute(
        root / "agent.db",
        """
        PRAGMA user_version=7;
        CREATE TABLE plain(a, "odd ""name");
        INSERT INTO plain VALUES (1, 'x'), (NULL, x'ff'), (1.5, CAST(x'ff' AS TEXT));
        CREATE TABLE keyed(k TEXT PRIMARY KEY, v) WITHOUT ROWID;
        INSERT INTO keyed VALUES ('b', 2), ('a', 1);
        CREATE TABLE shadowed(rowid, _rowid_, oid);
        INSERT INTO shadowed VALUES (2, 0, 0), (1, 0, 0);
        CREATE TABLE half(rowid TEXT, b); INSERT INTO half VALUES ('z', 1), ('y', 2);
        CREATE TABLE counted(id INTEGER PRIMARY KEY AUTOINCREMENT); INSERT INTO counted VALUES (41);
        CREATE TABLE made(a, b AS (a * 2)); INSERT INTO made VALUES (3);
        CREATE INDEX plain_a ON plain(a); CREATE VIEW seen AS SELECT a FROM plain; ANALYZE;
        """,
    )
    rows = rows_of(root)
    assert Row("agent.db", ("user_version", "application_id"), (7, 0)) in rows
    assert table(rows, "agent.db/plain") == [(1, "x"), (None, b"\xff"), (1.5, b"\xff")]
    assert Row("agent.db/plain", ("a", 'odd "name'), (1, "x")) in rows
    assert Row("agent.db/keyed", ("k", "v"), ("a", 1), ordered=False) in rows
    assert table(rows, "agent.db/shadowed") == [(1, 0, 0), (2, 0, 0)]
    assert table(rows, "agent.db/half") == [("z", 1), ("y", 2)]
    assert table(rows, "agent.db/sqlite_sequence") == [("counted", 41)]
    assert table(rows, "agent.db/made") == [(3,)]
    names = [cells[1] for cells in table(rows, "agent.db/sqlite_schema")]
    assert {"plain", "plain_a", "seen", "sqlite_sequence"} <= set(names)
    assert not any(str(name).startswith("sqlite_stat") for name in names)


def test_layout_does_not_matter(root: Path) -> None:
    """Free pages, page size, VACUUM and the journal mode are not state."""
    path = root / "agent.db"
    execute(path, "CREATE TABLE u(a); CREATE TABLE t(a, b); CREATE INDEX i ON t(b); INSERT INTO t VALUES (1, 'x')")
    wanted = digest_of(root)
    execute(path, "CREATE TABLE z(x); INSERT INTO z VALUES (zeroblob(30000)); DROP TABLE z")
    layouts = {path.read_bytes()}
    assert digest_of(root) == wanted
    for script in ("PRAGMA page_size=512; VACUUM", "REINDEX; ANALYZE", "PRAGMA journal_mode=WAL", "VACUUM"):
        execute(path, script)
        layouts.add(path.read_bytes())
        assert digest_of(root) == wanted, script
    assert len(layouts) >= 4
    execute(path, "UPDATE t SET b = 'y'")
    assert digest_of(root) != wanted


def test_an_open_wal_writer_shows_its_commits_and_nothing_else(root: Path) -> None:
    """Commits live in the log until a checkpoint; frames spilled by an open transaction do not count."""
    with writer(
        root,
        "connection.execute('PRAGMA journal_mode=WAL'); connection.execute('CREATE TABLE t(v)')\n"
        "connection.execute(\"INSERT INTO t VALUES ('committed')\")\n" + SPILLING,
    ):
        committed_bytes = (root / "agent.db-wal").stat().st_size
        assert committed_bytes > 60 * 3000  # the spilled transaction really is in the log
        assert (root / "agent.db-shm").exists()
        store = DirectoryStore(root)
        picture = store.snapshot()
        assert [entry.path for entry in picture.entries] == ["agent.db", "agent.db-wal"]
        assert table(store.rows(picture), "agent.db/t") == [("committed",)]
    copy = root.parent / "copy"
    copy.mkdir()
    DirectoryStore(copy).restore(picture)
    with closing(sqlite3.connect(copy / "agent.db")) as connection:
        assert connection.execute("SELECT v FROM t").fetchall() == [("committed",)]


def test_a_hot_journal_is_rolled_back(root: Path) -> None:
    """A SIGKILLed writer leaves a database with half a transaction in it."""
    path = root / "agent.db"
    execute(path, "CREATE TABLE t(v); INSERT INTO t VALUES ('old'), ('older')")
    wanted, before = digest_of(root), path.read_bytes()
    with writer(root, SPILLING) as process:
        during = rows_of(root)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert path.read_bytes() != before
        assert (root / "agent.db-journal").read_bytes()[:8] == JOURNAL_MAGIC
        assert table(during, "agent.db/t") == table(rows_of(root), "agent.db/t") == [("old",), ("older",)]
        assert digest_of(root) == wanted
        picture = DirectoryStore(root).snapshot()
    shutil.rmtree(root)
    root.mkdir()
    DirectoryStore(root).restore(picture)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT v FROM t").fetchall() == [("old",), ("older",)]
    assert digest_of(root) == wanted


def test_an_unspilled_transaction_and_a_persistent_journal_change_nothing(root: Path) -> None:
    """A journal file that is not hot takes the fast way."""
    execute(root / "agent.db", "CREATE TABLE t(v); INSERT INTO t VALUES ('old')")
    wanted = digest_of(root)
    with writer(root, "connection.executescript(\"BEGIN; INSERT INTO t VALUES ('new')\")"):
        assert (root / "agent.db-journal").exists()
        assert digest_of(root) == wanted
    (root / "agent.db-journal").unlink(missing_ok=True)
    execute(root / "agent.db", "PRAGMA journal_mode=PERSIST; DELETE FROM t; INSERT INTO t VALUES ('old')")
    assert (root / "agent.db-journal").stat().st_size > 0
    assert digest_of(root) == wanted


@pytest.mark.parametrize("present", [True, False])
def test_a_super_journal_of_the_picture_decides_not_one_of_the_live_world(root: Path, present: bool) -> None:
    """A commit over two databases is rolled back while its super-journal exists, and done once it is gone."""
    path = root / "agent.db"
    execute(path, "CREATE TABLE t(v); INSERT INTO t VALUES ('old')")
    keep_journal = "(root / 'kept').write_bytes((root / 'agent.db-journal').read_bytes())"
    with writer(root, f"{SPILLING}\n{keep_journal}\nconnection.execute('COMMIT')"):
        data, journal = path.read_bytes(), (root / "kept").read_bytes()
    name = str(root / "agent.db-mj0123456789").encode()
    page = (0x40000000 // int.from_bytes(data[16:18], "big") + 1).to_bytes(4, "big")
    # As writeSuperJournal() lays it out: page number, name, length, checksum, magic.
    sum_ = sum(byte - 256 if byte > 127 else byte for byte in name) & 0xFFFFFFFF
    tail = page + name + len(name).to_bytes(4, "big") + sum_.to_bytes(4, "big") + JOURNAL_MAGIC
    assert super_journal_of(journal + tail) == "agent.db-mj0123456789"
    supers = {"agent.db-mj0123456789"} if present else set()
    rows = database_rows("agent.db", data, None, journal + tail, super_journals=supers)
    assert table(rows, "agent.db/t")[0] == ("old" if present else "changed",)


def test_a_real_commit_over_two_databases_is_all_or_nothing(root: Path) -> None:
    """The names of super-journals are random, so they must not enter the digest either."""
    for name in ("agent.db", "other.db"):
        execute(root / name, "CREATE TABLE t(v)")
    execute(
        root / "agent.db",
        f"ATTACH '{root / 'other.db'}' AS o;BEGIN; INSERT INTO t VALUES (1); INSERT INTO o.t VALUES (1); COMMIT",
    )
    wanted = digest_of(root)
    (root / "agent.db-mj0A1B2C3D4").write_bytes(str(root / "agent.db-journal").encode() + b"\0")
    assert digest_of(root) == wanted


def test_an_empty_database_is_one_with_or_without_its_first_journal(root: Path) -> None:
    """A process killed in its first transaction leaves an empty file and perhaps a journal."""
    (root / "agent.db").touch()
    (root / "agent.db").chmod(0o644)
    wanted = rows_of(root)
    assert wanted == [Row("agent.db", ("user_version", "application_id"), (0, 0))]
    with writer(root, "connection.executescript('BEGIN; CREATE TABLE t(v)')"):
        assert (root / "agent.db-journal").exists()
        assert rows_of(root) == wanted


def test_a_corrupt_database_is_its_bytes(root: Path) -> None:
    """Whatever the code does with it, two different wrecks are different states."""
    path = root / "agent.db"
    execute(path, "CREATE TABLE t(v); INSERT INTO t VALUES ('x')")
    data = path.read_bytes()
    path.write_bytes(data[:100] + b"\x77" * 300 + data[400:])
    (row,) = [row for row in rows_of(root) if "corrupt" in row.names]
    assert row.cells[0] == path.read_bytes()
    one = digest_of(root)
    path.write_bytes(data[:1000])
    assert digest_of(root) != one


def test_a_foreign_collation_and_a_virtual_table_are_survived(root: Path) -> None:
    """The application registers functions and modules that we do not have."""
    with closing(sqlite3.connect(root / "agent.db", isolation_level=None)) as connection:
        connection.create_collation("mine", lambda a, b: (a < b) - (a > b))
        connection.execute("CREATE TABLE t(k TEXT COLLATE mine PRIMARY KEY, v)")
        connection.execute("INSERT INTO t VALUES ('a', 1), ('b', 2)")
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute(
            "INSERT INTO sqlite_master VALUES ('table', 'v', 'v', 0, 'CREATE VIRTUAL TABLE v USING gone')"
        )
    rows = rows_of(root)
    assert table(rows, "agent.db/t") == [("a", 1), ("b", 2)]
    assert not any("corrupt" in row.names for row in rows)


def test_a_table_that_cannot_be_read_makes_the_database_its_bytes(root: Path) -> None:
    """SQLite itself cannot read a table WITHOUT ROWID under a collation it lacks; bytes keep states apart."""
    with closing(sqlite3.connect(root / "agent.db", isolation_level=None)) as connection:
        connection.create_collation("mine", lambda a, b: (a < b) - (a > b))
        connection.execute("CREATE TABLE t(k TEXT COLLATE mine PRIMARY KEY, v) WITHOUT ROWID")
    (row,) = [row for row in rows_of(root) if "corrupt" in row.names]
    assert row.cells[0] == (root / "agent.db").read_bytes()


def test_snapshots_use_an_unpatched_connection(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seam that patches sqlite3.connect must not see ours."""
    execute(root / "agent.db", "CREATE TABLE t(v)")
    monkeypatch.setattr(sqlite3, "connect", None)
    sqlite_store._cache.clear()
    assert table(rows_of(root), "agent.db/sqlite_schema")


def test_the_cache_is_bounded_and_keyed_by_content(root: Path) -> None:
    """Many states pass through one process."""
    datas = []
    for number in range(3):
        execute(root / "agent.db", f"PRAGMA user_version={number}")
        datas.append((root / "agent.db").read_bytes())
    for repeat in range(2):
        versions = [database_rows("agent.db", data, None, None)[0].cells[0] for data in datas]
        assert versions == [0, 1, 2], repeat
    for number in range(300):
        database_rows(f"{number}.db", b"", None, None)
    assert len(sqlite_store._cache) <= 256
