"""D15: a job is run again, its upload is refused because the file exists, and everything downstream is skipped.

Reports: yfedoseev/pdf_oxide#548, Expensify/App#61966. "Exists already" is a success when the content is the same.
"""

from __future__ import annotations

from pytest_once import Once, Verdict, explore
from tests.incidents.models import cell, convicted, database, exactly_once

WHEEL = "wheel of commit 1a2b"


def upload(once: Once, name: str, content: str, *, same_is_fine: bool) -> None:
    """The store refuses a name that it has."""
    with database(once, "releases", "files(name TEXT PRIMARY KEY, content)") as db:
        row = db.execute("SELECT content FROM files WHERE name = ?", (name,)).fetchone()
        if row is None:
            db.execute("INSERT INTO files VALUES (?, ?)", (name, content))
        elif not (same_is_fine and row[0] == content):
            raise FileExistsError(name)


def pipeline(once: Once, *, same_is_fine: bool) -> None:
    once.count("releases.db", "SELECT name, 1 FROM files")
    registry = once.provider("registry", contract="client_key")
    with database(once, "ci", "finished(job)") as db:
        if db.execute("SELECT 1 FROM finished").fetchone():
            return
        upload(once, "tool-1.0.whl", WHEEL, same_is_fine=same_is_fine)
        registry.call("publish", {"release": "tool-1.0"}, key="tool-1.0").raise_for_status()
        db.execute("INSERT INTO finished VALUES ('release')")


def test_the_rerun_is_refused_what_the_first_run_did() -> None:
    report = explore(lambda once: pipeline(once, same_is_fine=False), faults=("error-before",))
    violation = convicted(report, Verdict.STUCK, expected=1, actual=0, key="tool-1.0")
    assert violation.story[-1].ending.startswith("raised FileExistsError")
    assert cell(report, "error-before", "registry publish") == "stuck"


def test_the_same_file_under_the_same_name_is_there_already() -> None:
    exactly_once(explore(lambda once: pipeline(once, same_is_fine=True), faults=("error-before",)))
