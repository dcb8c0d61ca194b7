"""The command line, as a person types it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_once.reference import people
from pytest_once.reference.command import main
from pytest_once.reference.databases import AsyncSQLite, PostgreSQL, SQLite
from pytest_once.reference.promise import Promise
from pytest_once.reference.reconciler import Lookup
from tests.reference.conftest import Clock, Opener
from tests.reference.gates import REFUND, Door, Provider


@pytest.fixture
def address(open_store: Opener, clock: Clock) -> str:
    """A database with one intent that waits for a person, as the command line names it."""
    store = open_store("own")
    door = Door(store, clock)
    door.refused(Provider().then(TimeoutError("no answer")))
    door.reconcile({"refund": Lookup(candidates=lambda sought: [{"id": "re_9", "amount": 500}])})
    database = getattr(store, "database", store)
    assert isinstance(database, (SQLite, AsyncSQLite, PostgreSQL))
    return database.url if isinstance(database, PostgreSQL) else database.path


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(arguments) == code
    told = capsys.readouterr()
    return told.err if code else told.out


def test_queue_resolve_queue(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    """S4.6: fingerprint, time window and candidates are shown; a decision empties the queue."""
    told = printed(capsys, "queue", address)
    assert f"{REFUND.id}  UNKNOWN" in told and REFUND.fingerprint in told
    assert "between 1970-01-12 13:46:40 UTC and 1970-01-12 13:47:40 UTC" in told
    assert 'candidate    {"amount": 500, "id": "re_9"}' in told
    decision = ("resolve", address, REFUND.id, "executed", "--by", "ada", "--why", "on the statement")
    assert printed(capsys, *decision, "--result", '{"id": "re_9"}') == f"{REFUND.id} is SUCCEEDED\n"
    assert printed(capsys, "queue", address) == "nobody has to decide anything\n"
    assert "is SUCCEEDED, not UNKNOWN" in printed(capsys, *decision, code=1)


def test_the_queue_is_also_json(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    """For a program that puts it into somebody's ticket system."""
    question = json.loads(printed(capsys, "queue", address, "--json"))
    assert question["intent_id"] == REFUND.id and question["candidates"] == [{"id": "re_9", "amount": 500}]


def test_metrics_as_text_and_for_prometheus(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    """S4.7: numbers for people and for the monitoring."""
    told = printed(capsys, "metrics", address)
    assert "unknown now           1, the oldest for" in told and "needed a person       100.0%" in told
    assert "once_gate_unknown 1\n" in printed(capsys, "metrics", address, "--prometheus")
    assert "resolved              none" in printed(capsys, "metrics", address, "--days", "7")


def test_costs_and_matrix(capsys: pytest.CaptureFixture[str]) -> None:
    """S4.12, S4.13: with the worked figures, with one's own, and from real runs."""
    told = printed(capsys, "costs")
    assert "90 " in told and "7,200" in told and "300" in told and "270" in told and "6,930" in told
    own = printed(capsys, "costs", "--calls", "2000", "--person-cost", "10")
    assert own.splitlines()[-1].split() == ["saved,", "a", "day", "675"]
    assert "killed after acting" in printed(capsys, "matrix")


def test_a_share_that_is_none_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """1.5 for 1.5 % would be a hundred times as much."""
    assert "error: ambiguous=1.5: give a share from 0 to 1" in printed(capsys, "costs", "--ambiguous", "1.5", code=1)


def test_a_database_that_is_none_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A mistyped path must not make an empty database that says "nobody has to decide anything"."""
    assert "there is no file" in printed(capsys, "queue", str(tmp_path / "nowhere.db"), code=1)
    empty = tmp_path / "empty.db"
    empty.touch()
    assert "Is it the gate's database" in printed(capsys, "queue", str(empty), code=1)
    gone = "postgresql://127.0.0.1:1/gone"
    assert gone in printed(capsys, "metrics", gone, code=1)


def test_it_runs_as_a_module(tmp_path: Path) -> None:
    """`python -m pytest_once.reference`, with usage and exit codes as of every command."""
    database = SQLite(tmp_path / "gate.db")
    database.migrate()
    database.close()
    command = [sys.executable, "-m", "pytest_once.reference"]
    done = subprocess.run([*command, "queue", str(tmp_path / "gate.db")], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "nobody has to decide anything\n")
    wrong = subprocess.run([*command, "resolve", "x", "i", "perhaps"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "invalid choice: 'perhaps'" in wrong.stderr


def test_a_contradiction_is_shown_as_one(tmp_path: Path, clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """S4.2: the one thing in the queue that means money may be lost already."""
    store = SQLite(tmp_path / "gate.db")
    store.migrate()
    door = Door(store, clock, Promise())

    def late(attempt: object) -> str:
        clock.now += 61
        store.transact(people.resolve(REFUND.id, "not-executed", "ada", "not seen", clock()))
        return "done after all"

    door.refused(late)
    store.close()
    told = printed(capsys, "queue", str(tmp_path / "gate.db"))
    assert f"{REFUND.id}  FAILED  CONTRADICTION" in told and "candidate    none" in told
