"""Which statements make something durable, told by their text alone: too many is harmless, too few is not."""

from __future__ import annotations

import pytest

from pytest_once.boundaries.transactions import Session, statements, written_by


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("insert into Jobs values (1)", "INSERT INTO Jobs"),
        ('INSERT INTO "my jobs" VALUES (1)', "INSERT INTO myjobs"),
        ("UPDATE ONLY shop.jobs SET a = 1", "UPDATE shop.jobs"),
        ("DELETE FROM jobs USING x", "DELETE FROM jobs"),
        ("MERGE INTO jobs USING x ON true WHEN MATCHED THEN DELETE", "MERGE INTO jobs"),
        ("WITH gone AS (DELETE FROM jobs RETURNING *) SELECT * FROM gone", "WITH DELETE FROM jobs"),
        ("SELECT * INTO copy FROM jobs", "SELECT INTO copy"),
        ("SELECT enqueue('x')", "SELECT enqueue()"),
        ("SELECT pg_catalog.setval('s', 1)", "SELECT setval()"),
        ("(SELECT nextval('s'))", "SELECT nextval()"),
        ("COPY jobs (a, b) FROM STDIN", "COPY jobs"),
        ("CREATE TABLE IF NOT EXISTS jobs (id int)", "CREATE TABLE jobs"),
        ("CREATE UNIQUE INDEX CONCURRENTLY i ON jobs (id)", "CREATE INDEX i"),
        ("TRUNCATE TABLE jobs", "TRUNCATE TABLE jobs"),
        ("TRUNCATE jobs, outbox", "TRUNCATE jobs"),
        ("CALL work(1)", "CALL work"),
        ("DO $$ BEGIN PERFORM 1; END $$", "DO"),
        ("EXECUTE plan (1)", "EXECUTE plan"),
        ("EXPLAIN ANALYZE INSERT INTO jobs VALUES (1)", "WITH INSERT INTO jobs"),
        ("IMPORT FOREIGN SCHEMA x", "IMPORT"),
    ],
)
def test_what_writes_is_told_by_statement_and_table(sql: str, told: str) -> None:
    """In words that hold no values."""
    (statement,) = statements(sql)
    found = written_by(statement)
    assert found is not None
    assert found[0] == told


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "SELECT count(*), max(id) FROM jobs WHERE state IN ('insert into x values (1)') FOR UPDATE SKIP LOCKED",
        "SELECT pg_catalog.version()",
        "SELECT pg_advisory_unlock_all()",
        "WITH a AS (SELECT 1), b AS (VALUES (1)) SELECT * FROM a, b FOR NO KEY UPDATE",
        "SELECT * FROM jobs -- DELETE FROM jobs",
        "SHOW server_version",
        "SET search_path = x",
        "LISTEN jobs",
        "COPY jobs TO STDOUT",
        "COPY (SELECT * FROM jobs) TO STDOUT",
        "CREATE TEMP TABLE t (id int)",
        "EXPLAIN INSERT INTO jobs VALUES (1)",
        "SAVEPOINT s",
        "DECLARE c CURSOR FOR SELECT 1",
    ],
)
def test_what_only_reads_is_not_told(sql: str) -> None:
    """A boundary where nothing can change makes every search longer."""
    (statement,) = statements(sql)
    assert written_by(statement) is None


def test_statements_are_parted_where_the_server_parts_them() -> None:
    """Not inside literals, names and comments."""
    text = """SELECT ';', E'\\';', $x$;$x$, "a;b"; -- ;
    /* ; */ INSERT INTO jobs VALUES (1);;"""
    assert statements(text) == ["SELECT '', '', '', \"a;b\"", "INSERT INTO jobs VALUES (1)"]
    assert statements("  -- nothing") == []


def what(session: Session, text: str, in_transaction: bool | None = None) -> str | None:
    passing = session.before(text, in_transaction=in_transaction)
    return None if passing is None else passing.what


def test_a_transaction_is_told_at_its_commit_with_all_it_wrote() -> None:
    """In the order of writing, each table once; a rolled-back one not at all."""
    session = Session()
    for text in ("BEGIN", "INSERT INTO b VALUES (1)", "UPDATE a SET x = 1", "SAVEPOINT s", "INSERT INTO b VALUES (2)"):
        assert what(session, text) is None
    assert what(session, "ROLLBACK TO s") is None
    assert what(session, "commit work") == "COMMIT (b, a)"
    assert what(session, "COMMIT") is None
    for text in ("START TRANSACTION READ WRITE", "INSERT INTO b VALUES (1)", "ROLLBACK", "BEGIN", "SELECT 1", "END"):
        assert what(session, text) is None
    assert what(session, "INSERT INTO b VALUES (1)") == "INSERT INTO b"


def test_what_the_driver_knows_of_the_server_counts() -> None:
    """A transaction that ended unseen, by an error or a reset, has made nothing durable."""
    session = Session()
    assert what(session, "INSERT INTO b VALUES (1)", in_transaction=True) is None
    assert what(session, "UPDATE a SET x = 1", in_transaction=False) == "UPDATE a"
    assert what(session, "BEGIN; UPDATE a SET x = 1; COMMIT AND CHAIN", in_transaction=False) == "COMMIT (a)"
    assert what(session, "DELETE FROM a") is None
    assert what(session, "COMMIT") == "COMMIT (a)"
