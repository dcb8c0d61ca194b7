"""The conformance suite passes on every contract of ours, and fails on wrong fakes for the right reason."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from once_fakes import Contract, contract_named
from once_fakes.conformance import Conformance, Said, Subject, ledger_subject
from once_fakes.contracts import contract_names
from once_fakes.dialect import Request

PLAIN = (
    Contract(name="strict", on_missing_key="error", retention_s=60),
    Contract(name="floor", retention_s=(60, None)),
    Contract(name="between", retention_s=(60, 120), on_mismatch="replay"),
    Contract(name="undocumented", retention_s="unspecified", on_mismatch="unspecified", replay_body="unspecified"),
    Contract(name="natural", dedup="natural_key", natural_key_field="order", lookup="by_client_ref"),
    Contract(name="window", dedup="content_window", window_s=30, lookup="list_only"),
    Contract(name="sequence", dedup="session_sequence", session_field="producer", sequence_field="number"),
    Contract(name="conditional", dedup="conditional", version_field="version", conflict_status=412),
    Contract(name="lagging", lookup="by_key", visibility_lag_s=60),
    Contract(name="later", acceptance="async202", lookup="by_client_ref"),
    Contract(name="rejecting", on_concurrent="reject", key_field="key"),
    Contract(name="fenced", fencing="token", fence_field="fence"),
)


def contracts_of_ours() -> list[Contract]:
    return [*PLAIN, *(contract_named(name) for name in contract_names())]


class TestOurContracts(Conformance):
    @pytest.fixture(params=contracts_of_ours(), ids=lambda contract: contract.name)
    def subject(self, request: pytest.FixtureRequest, tmp_path: Path) -> Subject:
        return ledger_subject(request.param, tmp_path)


# A fake of somebody else's: a SQLite file, and code that may be wrong in one way.

SCHEMA = """
CREATE TABLE IF NOT EXISTS effects(key TEXT, body TEXT);
CREATE TABLE IF NOT EXISTS receipts(key TEXT PRIMARY KEY, body TEXT, answer TEXT, at REAL);
"""
PROMISED = Contract(name="theirs", retention_s=60.0)


class Theirs:
    """receipt: "with" the effect, "before" or "after" it, in a transaction of its own."""

    def __init__(self, directory: Path, *, receipt: str = "with", binds: bool = True, kept_s: float = 60.0) -> None:
        self._path = directory / "theirs.db"
        self._receipt = receipt
        self._binds = binds
        self._kept_s = kept_s
        self.now_s = 0.0
        self._one_at_a_time = threading.Lock()  # wrong about crashes only, not about requests at the same time
        with self._transaction() as connection:
            connection.executescript(SCHEMA)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=30, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            if connection.in_transaction:
                connection.execute("COMMIT")

    def count(self) -> int:
        with self._transaction() as connection:
            return int(connection.execute("SELECT count(*) FROM effects").fetchone()[0])

    def send(self, request: Request) -> Said:
        if request.method != "POST":
            return said(405, "no such method")
        key = request.headers.get("idempotency-key")
        try:
            body = json.dumps(json.loads(request.body), sort_keys=True)
        except ValueError:
            return said(400, "not JSON")
        if key is not None and len(key) > 255:
            return said(400, "the key is too long")
        answer = json.dumps({"done": body})
        with self._one_at_a_time, self._transaction() as connection:
            connection.execute("DELETE FROM receipts WHERE at <= ?", (self.now_s - self._kept_s,))
            known = connection.execute("SELECT body, answer FROM receipts WHERE key = ?", (key,)).fetchone()
            if known is not None:
                if known[0] != body and self._binds:
                    return said(422, "another request had this key")
                return Said(200, {"idempotent-replayed": "true"}, known[1].encode())
            if self._receipt == "before":
                self._keep(connection, key, body, answer)
                connection.execute("COMMIT")
                connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO effects VALUES (?, ?)", (key, body))
            if self._receipt == "after":
                connection.execute("COMMIT")
                connection.execute("BEGIN IMMEDIATE")
            if self._receipt != "before":
                self._keep(connection, key, body, answer)
        return Said(200, {}, answer.encode())

    def _keep(self, connection: sqlite3.Connection, key: str | None, body: str, answer: str) -> None:
        if key is not None:
            connection.execute("INSERT INTO receipts VALUES (?, ?, ?, ?)", (key, body, answer, self.now_s))


def said(status: int, message: str) -> Said:
    return Said(status, {}, json.dumps({"error": message}).encode())


def subject_of(make: Callable[[Path], Theirs], directory: Path) -> Subject:
    theirs = make(directory)

    def advance(seconds: float) -> None:
        theirs.now_s += seconds

    return Subject(
        contract=PROMISED,
        send=theirs.send,
        effects=theirs.count,
        advance=advance,
        crash_build=lambda where: make(where).send,
        crash_count=("theirs.db", "SELECT key, count(*) FROM effects GROUP BY key"),
    )


class TestAFakeThatKeepsItsPromise(Conformance):
    @pytest.fixture
    def subject(self, tmp_path: Path) -> Subject:
        return subject_of(Theirs, tmp_path)


CHECKS = [name for name in dir(Conformance) if name.startswith("test_")]


@pytest.mark.parametrize(
    ("wrong", "failing", "reason"),
    [
        (
            lambda path: Theirs(path, receipt="after"),
            "test_a_crash_of_the_provider_leaves_effect_and_receipt_together",
            "a crash of the provider and a repetition of the request gave DUPLICATE",
        ),
        (
            lambda path: Theirs(path, receipt="before"),
            "test_a_crash_of_the_provider_leaves_effect_and_receipt_together",
            "a crash of the provider and a repetition of the request gave OMISSION",
        ),
        (
            lambda path: Theirs(path, binds=False),
            "test_the_same_key_with_another_payload",
            "on_mismatch='error', but the same key with another payload was answered with 200",
        ),
        (
            lambda path: Theirs(path, kept_s=30.0),
            "test_a_receipt_is_kept_as_long_as_promised",
            r"while the receipt is promised to be kept \(for 60 s\) had 2 effects, where 1 are promised",
        ),
        (
            lambda path: Theirs(path, kept_s=90.0),
            "test_a_receipt_is_forgotten_when_it_expires",
            "61 s later, when the receipt has expired had 1 effects, where 2 are promised",
        ),
    ],
    ids=["effect first", "receipt first", "mismatch replayed", "forgets early", "forgets late"],
)
def test_a_wrong_fake_fails_for_the_right_reason(
    wrong: Callable[[Path], Theirs], failing: str, reason: str, tmp_path: Path
) -> None:
    """A suite that everybody passes proves nothing, and one that fails everywhere explains nothing."""
    suite = Conformance()
    for number, name in enumerate(CHECKS):
        directory = tmp_path / str(number)
        directory.mkdir()
        check = getattr(suite, name)
        if name == failing:
            with pytest.raises(AssertionError, match=reason):
                check(subject_of(wrong, directory))
        else:
            try:
                check(subject_of(wrong, directory))
            except BaseException as skipped:
                if type(skipped).__name__ != "SkipTest":
                    raise


def test_a_subject_that_cannot_tell_its_effects_is_tested_by_its_answers(tmp_path: Path) -> None:
    """A sandbox shows answers only: a replayed mismatch is seen all the same."""
    subject = replace(subject_of(lambda path: Theirs(path, binds=False), tmp_path), effects=None)
    Conformance().test_a_request_acts(subject)
    with pytest.raises(AssertionError, match="the same key with another payload was answered with 200"):
        Conformance().test_the_same_key_with_another_payload(subject)
