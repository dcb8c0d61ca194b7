"""What `ignore=` leaves out is exchanged, and only that; a life that notices is told apart from one that does not."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pytest_once import Once
from pytest_once.canonical import Naming
from pytest_once.life import Birth, let_live
from pytest_once.perturbation import STEP, Perturbed, ignored_yet_decisive, outcome_differs, perturbed
from pytest_once.premises import Premises, ProviderServer
from pytest_once.recording import FrontEnd, Recorder
from pytest_once.scenario import Expectations, Limits
from pytest_once.stores.directory import DirectoryStore
from pytest_once.world import World
from tests.engine.bodies import careful, put, state, tasks

Values = list[tuple[Any, ...]]


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A world of one directory, which is called "here"."""
    (tmp_path / "here").mkdir()
    return World([DirectoryStore(tmp_path / "here", "here")])


def make(tmp_path: Path, script: str, name: str = "agent.db") -> sqlite3.Connection:
    connection = sqlite3.connect(tmp_path / "here" / name, isolation_level=None)
    connection.executescript(script)
    return connection


def exchanged(world: World, *ignore: str) -> Perturbed:
    found = perturbed(world, world.take(), ignore)
    assert found is not None
    return found


def values(world: World, found: Perturbed, place: str) -> Values:
    """The rows of a place after the exchange, read as the next process would, from the files put back."""
    world.put(found.picture)
    return [row.cells for row in world.rows(world.take()) if row.place == place]


def test_only_ignored_columns_change_and_the_state_stays_the_same(world: World, tmp_path: Path) -> None:
    """Otherwise it would be another node, which is lived anyway."""
    make(
        tmp_path,
        "CREATE TABLE tasks(id TEXT PRIMARY KEY, state TEXT, attempts INTEGER, updated_at TEXT);"
        "INSERT INTO tasks VALUES ('a', 'new', 1, '2026-02-28 10:00:00'), ('b', 'new', NULL, 'unknown')",
    ).close()
    before = world.take()
    found = exchanged(world, "tasks.attempts", "*.updated_at")
    assert found.changed == ("here/agent.db/tasks.attempts", "here/agent.db/tasks.updated_at")
    assert found.left == ()
    assert values(world, found, "here/agent.db/tasks") == [
        ("a", "new", 1 + STEP, "2030-02-28 10:00:00"),
        ("b", "new", None, "unknown~perturbed"),
    ]
    naming = Naming(ignore=("tasks.attempts", "*.updated_at"))
    assert world.digest(found.picture, naming, 0.0) == world.digest(before, naming, 0.0)
    assert found.picture.key != before.key


@pytest.mark.parametrize(
    ("value", "other"),
    [
        (7, 7 + STEP),
        (2**63 - 1, 2**63 - 1 - STEP),
        (0.5, 0.5 + STEP),
        ("7", str(7 + STEP)),
        ("word", "word~perturbed"),
        ("", "~perturbed"),
        (b"\x00\xff", b"\x00\xff~perturbed"),
        ("2024-02-29T10:00:00+00:00", "2028-02-29T10:00:00+00:00"),
        ("123e4567-e89b-42d3-a456-426614174000", "123e4567-e89b-42d3-a456-426614174001"),
        ('{"n": 1, "deep": ["x", true, null]}', f'{{"n": {1 + STEP}, "deep": ["x~perturbed", false, null]}}'),
        ("{broken", "{broken~perturbed"),
        ("{}", "{} "),
    ],
)
def test_a_value_becomes_another_one_of_its_kind(world: World, tmp_path: Path, value: object, other: object) -> None:
    """Code that reads a date only to print it must not fail because it is no date any more."""
    with closing(make(tmp_path, "CREATE TABLE t(x)")) as connection:
        connection.execute("INSERT INTO t VALUES (?)", (value,))
    assert values(world, exchanged(world, "t.x"), "here/agent.db/t") == [(other,)]


def test_unique_values_stay_unique_and_keys_keep_their_order(world: World, tmp_path: Path) -> None:
    """A number added to all, never one value for all."""
    rows = ", ".join(f"({n}, 'n{n}')" for n in range(1, 50))
    make(
        tmp_path, f"CREATE TABLE t(n INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL); INSERT INTO t VALUES {rows}"
    ).close()
    found = exchanged(world, "agent.db/t")
    assert found.left == ()
    assert values(world, found, "here/agent.db/t") == [(n + STEP, f"n{n}~perturbed") for n in range(1, 50)]


def test_rows_whose_constraints_refuse_stay_and_are_told(world: World, tmp_path: Path) -> None:
    """A check that was not made is no check."""
    make(tmp_path, "CREATE TABLE t(flag INTEGER CHECK(flag IN (0, 1)), n); INSERT INTO t VALUES (1, 2), (0, 3)").close()
    found = exchanged(world, "t.*")
    assert found.changed == ("here/agent.db/t.n",)
    assert found.left == ("here/agent.db/t.flag (2 of 2 rows, by a constraint)",)
    assert values(world, found, "here/agent.db/t") == [(1, 2 + STEP), (0, 3 + STEP)]


def test_an_index_that_only_the_application_can_read_is_told(world: World, tmp_path: Path) -> None:
    """Its function is registered by the application's connection and no other."""
    with closing(make(tmp_path, "CREATE TABLE t(a, b)")) as connection:
        connection.create_function("own", 1, lambda value: value, deterministic=True)
        connection.executescript("INSERT INTO t VALUES (1, 2); CREATE INDEX i ON t(own(a))")
    found = exchanged(world, "t.*")
    assert found.changed == ("here/agent.db/t.b",)
    (left,) = found.left
    assert left.startswith("here/agent.db/t.a (")


def test_triggers_do_not_fire_and_stay(world: World, tmp_path: Path) -> None:
    """A trigger that counts updates would change what is not ignored."""
    make(
        tmp_path,
        "CREATE TABLE t(x, updates); CREATE TRIGGER counting AFTER UPDATE ON t BEGIN"
        " UPDATE t SET updates = updates + 1; END; INSERT INTO t VALUES (1, 0)",
    ).close()
    before = world.take()
    found = exchanged(world, "t.x")
    assert values(world, found, "here/agent.db/t") == [(1 + STEP, 0)]
    assert world.digest(found.picture, Naming(ignore=("t.x",)), 0.0) == world.digest(
        before, Naming(ignore=("t.x",)), 0.0
    )


def test_a_log_is_taken_in_and_a_journal_rolled_back(world: World, tmp_path: Path) -> None:
    """A picture taken at a crash is recovered first; a log would overwrite what is exchanged in the file alone."""
    wal = make(tmp_path, "PRAGMA journal_mode=WAL; CREATE TABLE t(x, y); INSERT INTO t VALUES (1, 1)", "wal.db")
    rollback = make(tmp_path, "CREATE TABLE t(x, y); INSERT INTO t VALUES (1, 1)", "rollback.db")
    rollback.executescript("PRAGMA cache_size=1; BEGIN; UPDATE t SET y = 2")
    rollback.executemany("INSERT INTO t VALUES (?, 0)", [("filling" * 500,)] * 50)
    picture = world.take()
    wal.close()
    rollback.close()
    names = {entry.path for entry in dict(picture.snapshots)["here"].entries}
    assert {"wal.db-wal", "rollback.db-journal"} <= names
    found = perturbed(world, picture, ("t.x",))
    assert found is not None
    assert values(world, found, "here/wal.db/t") == [(1 + STEP, 1)]
    assert values(world, found, "here/rollback.db/t") == [(1 + STEP, 1)]


def test_ignored_files_get_another_content_and_others_none(world: World, tmp_path: Path) -> None:
    """Text grows by a word, JSON keeps its shape, bytes get more of them."""
    for name, data in (("app.log", b"one\n"), ("kept.txt", b"x"), ("raw.log", b"\xff"), ("meta.json", b'{"n": 1}\n')):
        (tmp_path / "here" / name).write_bytes(data)
    found = exchanged(world, "*.log", "meta.json")
    world.put(found.picture)
    content = {path.name: path.read_bytes() for path in (tmp_path / "here").iterdir()}
    assert content == {
        "app.log": b"one~perturbed\n",
        "kept.txt": b"x",
        "raw.log": b"\xff~perturbed",
        "meta.json": b'{"n": %d}\n' % (1 + STEP),
    }


@pytest.mark.parametrize("ignore", [(), ("other.column",), ("t.x",)])
def test_a_world_without_ignored_values_needs_no_second_life(
    world: World, tmp_path: Path, ignore: tuple[str, ...]
) -> None:
    """NULL stays NULL: only a value can be another one."""
    make(tmp_path, "CREATE TABLE t(x, y); INSERT INTO t VALUES (NULL, 1)").close()
    make(tmp_path, "", "empty.db").close()
    assert perturbed(world, world.take(), ignore) is None


# Lives


def differences(body: Callable[[Once], Any], *ignore: str) -> Iterator[str | None]:
    """From each state of the fault-free run: how a life with other ignored values differs from one without."""
    with ProviderServer() as server, Premises(server) as premises:
        recorder = Recorder(premises, FrontEnd(act=body), Expectations(ignore=ignore), Limits())
        recording = recorder.record()
        stage = recording.stage
        for sight in recording.first.sights:
            assert sight is not None
            found = perturbed(stage.world, sight.picture, ignore)
            if found is None:
                continue
            lives = []
            for picture in (sight.picture, found.picture):
                stage.put(picture)
                lives.append(stage.live(Birth(1, 0, sight.now_s + 1.0), sight.tokens, let_live))
            yield outcome_differs(recording.evidence, *lives)
        recorder.settle()


def counting(once: Once, limit: int | None, sends: bool = False) -> None:
    """Notes how often it tried; what it makes of that is the question."""
    with tasks(once) as db:
        if state(db) is None:
            put(db, "planned", note=0)
        if state(db) == "planned":
            tried = db.execute("SELECT note FROM tasks").fetchone()[0]
            db.execute("UPDATE tasks SET note = ?", (tried + 1,))
            if limit is None or tried < limit:
                careful(once).call("refund", {"order": "o1", **({"tried": tried} if sends else {})}, key="o1")
            put(db, "done", note=tried + 1)


def test_a_counter_that_is_only_kept_decides_nothing() -> None:
    """The reason why there is `ignore=`."""
    found = list(differences(lambda once: counting(once, None), "tasks.note"))
    assert len(found) >= 3
    assert set(found) == {None}


def test_a_counter_that_limits_the_attempts_decides_where_it_goes() -> None:
    """The near miss: ignored, it would merge the last attempt with the first, and a stuck task would pass."""
    found = list(differences(lambda once: counting(once, 5), "tasks.note"))
    assert any("instead of pay refund" in str(one) for one in found), found


def test_an_ignored_value_that_is_sent_differs_in_its_effects() -> None:
    """The way is the same, and the provider is told something else."""
    found = list(differences(lambda once: counting(once, None, sends=True), "tasks.note"))
    assert any("other effects have happened before" in str(one) for one in found), found


def test_an_ignored_file_that_is_copied_into_the_state_differs_in_the_world() -> None:
    """What is derived from an ignored value is a decision too."""

    def body(once: Once) -> None:
        log, summary = once.path / "app.log", once.path / "summary.txt"
        if not log.exists():
            log.write_text("started\n")
        careful(once).call("refund", {"order": "o1"}, key="o1")
        summary.write_text(log.read_text())

    found = list(differences(body, "*.log"))
    assert any("another world is left before" in str(one) for one in found), found


def test_the_message_names_the_column_and_the_remedy() -> None:
    """Which of several patterns is at fault is what one has to know."""
    found = Perturbed(World().take(), ("tmp_path/agent.db/tasks.attempts",))
    said = ignored_yet_decisive(found, "it ends with 'none' instead of 'done'")
    assert "tmp_path/agent.db/tasks.attempts" in said
    assert "it ends with 'none' instead of 'done'" in said
    assert "take it out of ignore=" in said
