"""A02: the model asks for two tools in one turn; one acts, the other pauses for a person, the resume runs both.

The only checkpoint is at the node's start, and the "fault" is an ordinary pause. Reports: langchain-ai/langgraph#3126,
rancher/rancher-ai-agent#136.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from pytest_once import Once, Verdict, explore
from tests.incidents.models import convicted_undisturbed, database, exactly_once


class Paused(Exception):
    """A person has to answer first."""


def ask_person(db: sqlite3.Connection) -> None:
    if not db.execute("SELECT 1 FROM answers").fetchone():
        raise Paused


def conversation(node: Callable[[Once, sqlite3.Connection], None], once: Once) -> None:
    with database(once, "graph", "answers(id TEXT PRIMARY KEY); done(id)") as db:
        while not db.execute("SELECT 1 FROM done").fetchone():
            try:
                node(once, db)
                db.execute("INSERT INTO done VALUES ('turn_1')")
            except Paused:
                db.execute("INSERT INTO answers VALUES ('yes')")  # the person answers, the node is entered again


def acts_as_it_goes(once: Once, db: sqlite3.Connection) -> None:
    once.provider("mail").call("send", {"mail": "mail_1"})
    ask_person(db)


def asks_first(once: Once, db: sqlite3.Connection) -> None:
    """All pauses are collected before anything acts, and what acts has a key."""
    ask_person(db)
    once.provider("mail", contract="client_key").call("send", {"mail": "mail_1"}, key="turn_1/mail")


def test_the_sibling_acts_before_and_after_the_pause() -> None:
    report = explore(lambda once: conversation(acts_as_it_goes, once), soft_faults=0, keys=["mail_1"])
    convicted_undisturbed(report, Verdict.DUPLICATE, expected=1, actual=2, key="mail_1")


def test_nothing_acts_before_every_pause_is_answered() -> None:
    exactly_once(explore(lambda once: conversation(asks_first, once), soft_faults=0))
