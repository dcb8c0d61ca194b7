"""A picture of a PostgreSQL database holds everything that is committed, and puts back exactly that."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pytest_once.canonical import Naming, Row
from pytest_once.clock import WINDOW_S
from pytest_once.perturbation import other_value
from pytest_once.stores import StoreError
from pytest_once.stores.postgresql import PostgreSQLStore
from pytest_once.world import World

Server = psycopg.Connection[tuple[object, ...]]


@pytest.fixture(scope="module")
def shared(postgresql: str) -> Iterator[PostgreSQLStore]:
    store = PostgreSQLStore(postgresql)
    try:
        yield store
    finally:
        store.close()


@pytest.fixture
def store(shared: PostgreSQLStore) -> Iterator[PostgreSQLStore]:
    """A store whose database has the schema and no rows."""
    empty = shared.snapshot()
    yield shared
    shared.restore(empty)


def execute(store: PostgreSQLStore, *statements: str) -> None:
    with psycopg.connect(store.address, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def rows(store: PostgreSQLStore, table: str = "") -> list[Row]:
    return [row for row in store.rows(store.snapshot()) if row.place.endswith(table)]


def digest(store: PostgreSQLStore) -> str:
    world = World([store])
    return world.digest(world.take(), Naming(clock_window=WINDOW_S), WINDOW_S[0] + 1)


JOB = "INSERT INTO jobs (task, state) VALUES ('a', 'new')"


def test_every_value_comes_back_as_it_was(store: PostgreSQLStore) -> None:
    """Whatever is in it: nulls, separators, binary, arrays, JSON, numbers at the edge."""
    execute(
        store,
        "CREATE TABLE odd (a text, b bytea, c jsonb, d float8, e numeric, f text[], g timestamptz, h bool, i int8, "
        "j int GENERATED ALWAYS AS (2) STORED)",
        "INSERT INTO odd VALUES (E'tab\\tline\\nback\\\\slash\\\\N', '\\x00ff', '{\"k\": [1, null]}', 'NaN', 1e30, "
        "ARRAY['x', NULL, '\"'], 'infinity', true, -9223372036854775808)",
        "INSERT INTO odd (a) VALUES (NULL), (''), ('\\N')",
    )
    before = rows(store, "/odd")
    picture = store.snapshot()
    execute(store, "UPDATE odd SET a = 'changed'", "DELETE FROM odd WHERE b IS NULL")
    store.restore(picture)
    assert store.snapshot().key == picture.key
    assert repr(rows(store, "/odd")) == repr(before)  # not a number is not equal to itself
    cells: dict[Any, tuple[Any, ...]] = {row.cells[0]: row.cells[1:] for row in before}
    assert cells["tab\tline\nback\\slash\\N"] == (
        b"\x00\xff",
        '{"k": [1, null]}',
        pytest.approx(float("nan"), nan_ok=True),
        "1000000000000000000000000000000",
        '{x,NULL,"\\""}',
        "infinity",
        "true",
        -(2**63),
    )
    assert {None, "", "\\N"} <= cells.keys()


def test_rows_that_refer_to_each_other_and_triggers_do_not_stand_in_the_way(store: PostgreSQLStore) -> None:
    """Putting back is no change that the schema has a say in."""
    execute(
        store,
        "CREATE TABLE audit (what text)",
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN INSERT INTO audit VALUES (TG_OP); RETURN NULL; END $$",
        "CREATE TRIGGER noted AFTER INSERT OR DELETE ON jobs FOR EACH ROW EXECUTE FUNCTION note()",
        JOB,
        "INSERT INTO outbox (job) SELECT id FROM jobs",
    )
    picture = store.snapshot()
    execute(store, "DELETE FROM outbox", "DELETE FROM jobs")
    store.restore(picture)
    assert [row.cells for row in rows(store, "/audit")] == [("INSERT",)]
    assert len(rows(store, "/jobs")) == len(rows(store, "/outbox")) == 1


def test_a_sequence_goes_on_where_it_was_and_is_no_state(store: PostgreSQLStore) -> None:
    """Every transaction that fails moves it on, so a search that told positions apart would never close."""
    before, picture = digest(store), store.snapshot()
    execute(store, "SELECT nextval('jobs_id_seq')")
    assert store.snapshot().key != picture.key
    assert digest(store) == before
    store.restore(picture)
    execute(store, JOB)
    assert rows(store, "/jobs")[0].cells[0] == 1
    execute(store, "SELECT setval('jobs_id_seq', 1, false)")
    assert rows(store, "_seq") == [Row(f"{store.name.partition('/')[2]}/jobs_id_seq", ("next",), ("taken already",))]


def test_the_servers_time_is_told_by_order_only(store: PostgreSQLStore) -> None:
    """now() is real and another one each time; the virtual instants of the code stay what they are."""
    picture = store.snapshot()
    digests = set()
    for _ in range(2):
        store.restore(picture)
        execute(
            store,
            JOB,
            "INSERT INTO jobs (task, state, made_at) VALUES ('b', 'new', '2031-03-04 05:06:07+00')",
            "INSERT INTO jobs (task, state) SELECT 'c', extract(epoch FROM clock_timestamp())",
            "INSERT INTO jobs (task, state) SELECT 'd', jsonb_build_object('at', now())",
        )
        digests.add(digest(store))
    assert len(digests) == 1
    cells = {row.cells[1]: row.cells[2:] for row in rows(store, "/jobs")}
    assert cells["a"] == ("new", "server time 1")
    assert cells["b"] == ("new", "2031-03-04 05:06:07+00")
    assert cells["c"] == ("server time 3", "server time 2")
    assert cells["d"] == ('{"at": "server time 4"}', "server time 4")


def test_what_the_servers_clock_made_grows_as_old_as_virtual_time_says(store: PostgreSQLStore) -> None:
    """A picture may be put back long after, or right after, it was taken; what code reads must depend on neither."""
    store.began(1000.0)
    execute(
        store,
        JOB,
        "INSERT INTO jobs (task, state, made_at) VALUES ('later', 'new', now() + interval '30 days')",
        "INSERT INTO jobs (task, state, made_at) VALUES ('fixed', 'new', '2026-01-01 00:00:00+00')",
    )
    picture = store.snapshot()
    before = digest(store)
    for passed_s in (3600.0, 0.0, 86400.0 * 60):
        store.restore(picture)
        store.began(1000.0 + passed_s)
        with psycopg.connect(store.address) as connection:
            query = "SELECT extract(epoch FROM now() - made_at)::float8 FROM jobs ORDER BY id"
            made, later = (float(age) for (age,) in connection.execute(query).fetchall()[:2])
        assert made == pytest.approx(passed_s, abs=20)
        assert later == pytest.approx(passed_s - 30 * 86400, abs=20)
        assert "2026-01-01 00:00:00+00" in [row.cells[3] for row in rows(store, "/jobs")]
        assert digest(store) == before


def test_a_schema_that_the_code_made_comes_and_goes(store: PostgreSQLStore, server: Server) -> None:
    """Also one that no life ended with: the later one has all of it, and more."""
    bare = store.snapshot()
    execute(store, "CREATE TABLE one (id serial PRIMARY KEY, v text)", "INSERT INTO one (v) VALUES ('x')")
    half = store.snapshot()
    execute(store, "CREATE TABLE two (id int REFERENCES one)", "ALTER TABLE one ADD COLUMN w int DEFAULT 7")
    execute(
        store,
        "CREATE INDEX by_v ON one (v)",
        "CREATE VIEW seen AS SELECT v FROM one",
        "CREATE TYPE mood AS ENUM ('ok')",
    )
    whole = store.snapshot()
    assert len({bare.key, half.key, whole.key, bare.schema, half.schema, whole.schema}) == 6
    for picture in (bare, half, whole, half, bare, whole):
        store.restore(picture)
        assert store.snapshot().key == picture.key
    assert [row.cells for row in rows(store, "/one")] == [(1, "x", 7)]


def test_a_schema_that_cannot_be_made_again_is_told(store: PostgreSQLStore) -> None:
    """One that was dropped on the way is nowhere any more."""
    bare = store.snapshot()
    execute(store, "CREATE TABLE passing (id int)")
    passing = store.snapshot()
    execute(store, "DROP TABLE passing", "CREATE TABLE lasting (id int)")
    lasting = store.snapshot()
    store.restore(bare)
    with pytest.raises(StoreError, match="Make the schema before the test"):
        store.restore(passing)
    store.restore(lasting)
    assert store.snapshot().key == lasting.key


def test_what_is_not_committed_is_in_no_picture_and_ends_with_its_session(store: PostgreSQLStore) -> None:
    """A killed process leaves sessions behind, and the server notices late."""
    before = store.snapshot()
    with psycopg.connect(store.address) as left:
        left.execute(JOB.encode())
        assert rows(store) == store.rows(before)
        store.restore(before)
        with pytest.raises(psycopg.OperationalError):
            left.execute("SELECT 1")


def test_a_table_locked_by_an_open_transaction_is_told(store: PostgreSQLStore) -> None:
    """Nobody can read it then, so nobody can say what is committed."""
    store.snapshot()
    assert store._connection is not None
    store._connection.execute("SET lock_timeout = 50")
    with psycopg.connect(store.address) as left:
        left.execute("TRUNCATE jobs CASCADE")
        with pytest.raises(StoreError, match="locked against reading by an open transaction"):
            store.snapshot()
        left.rollback()
    store._connection.execute("RESET lock_timeout")


@pytest.mark.slow
def test_a_database_in_use_cannot_be_named(postgresql: str) -> None:
    """PostgreSQL copies only what nobody is connected to; it waits five seconds itself."""
    with psycopg.connect(postgresql), pytest.raises(StoreError, match="while somebody is connected to it"):
        PostgreSQLStore(postgresql)


LEFT = """
import os, signal, sys
from pytest_once.stores.postgresql import PostgreSQLStore
print(PostgreSQLStore(sys.argv[1]).address, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_run_has_left_is_swept_by_the_next(postgresql: str, server: Server) -> None:
    """And only that: the databases of runs that are alive stay."""
    alive = PostgreSQLStore(postgresql)
    try:
        left = subprocess.run([sys.executable, "-c", LEFT, postgresql], capture_output=True, text=True, check=False)
        assert left.stdout, left.stderr
        gone = left.stdout.strip().rpartition("/")[2]
        PostgreSQLStore(postgresql).close()
        names = {name for (name,) in server.execute("SELECT datname FROM pg_database")}
        assert gone not in names
        assert alive.address.rpartition("/")[2] in names
    finally:
        alive.close()


def test_passwords_stay_out_of_messages() -> None:
    """Reports are published."""
    with pytest.raises(StoreError) as refused:
        PostgreSQLStore("postgresql://me:secret@127.0.0.1:1/test")
    assert "secret" not in str(refused.value)


def test_ignored_values_are_exchanged_as_far_as_their_columns_admit(store: PostgreSQLStore) -> None:
    """Each by one of its type; what a constraint refuses is told, for nobody has then looked at what it decides."""
    types = {
        "small": ("int2", "7"), "whole": ("int4", "7"), "large": ("int8", "7"), "exact": ("numeric", "7.5"),
        "real": ("float8", "7.5"), "truth": ("bool", "true"), "word": ("text", "'new'"), "bytes": ("bytea", "'\\xff'"),
        "at": ("timestamptz", "'2026-01-02 03:04:05+00'"), "form": ("jsonb", """'{"n": 1}'"""),
        "id": ("uuid", "'11111111-1111-4111-8111-111111111111'"),
        "few": ("int4 CHECK (few < 9)", "7"), "short": ("varchar(3)", "'new'"), "kept": ("text", "'new'"),
    }  # fmt: skip
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in types.items())
    values = ", ".join(value for _, value in types.values())
    execute(store, f"CREATE TABLE kinds ({columns})", f"INSERT INTO kinds VALUES ({values})")
    before = store.snapshot()
    exchanged = store.exchanged(
        before, lambda place, column: place.endswith("/kinds") and column != "kept", other_value
    )
    (was,), (row,) = (
        [one for one in store.rows(seen) if one.place.endswith("/kinds")] for seen in (before, exchanged.snapshot)
    )
    same = {name for name, old, new in zip(row.names, was.cells, row.cells, strict=True) if old == new}
    assert same == {"few", "short", "kept"}
    assert [told.split("/")[-1].split(" ")[0] for told in exchanged.left] == ["kinds.few", "kinds.short"]
    assert {told.split(".")[-1] for told in exchanged.changed} == types.keys() - same
    store.restore(before)
    assert store.snapshot().key == before.key
