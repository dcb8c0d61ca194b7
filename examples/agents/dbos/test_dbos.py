"""DBOS: a workflow that was interrupted is recovered at launch, and a step without a recorded outcome is run again.

DBOS works with threads that look for something to do, now and then; so it runs as a program, by `once.process`, and is cut
where it asks the provider.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_once import Once

DECIDES_NOTHING = ("workflow_status.recovery_attempts", "workflow_status.started_at_epoch_ms")
"""How often a workflow was recovered, which is without limit here; and when, by the real clock of a program."""


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A system database with its tables, as a deployment makes it."""
    path = tmp_path_factory.mktemp("dbos") / "migrated.db"
    command = [str(Path(sys.executable).parent / "dbos"), "migrate", "--sys-db-url", f"sqlite:///{path}"]
    subprocess.run(command, check=True, capture_output=True)
    return path


def run(once: Once, migrated: Path, tool: str) -> None:
    """One life of the worker."""
    database = once.path / "dbos.db"
    if not database.exists():
        shutil.copyfile(migrated, once.path / "new.db")
        (once.path / "new.db").rename(database)
    payments = once.provider("payments", contract="client_key")
    once.process(
        [sys.executable, "-m", "examples.agents.dbos.workflow", tool],
        env={"PAYMENTS_URL": payments.url, "DATABASE": str(database), "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout_s=30.0,
    )


@pytest.mark.once_effect(soft_faults=0, ignore=DECIDES_NOTHING)
@pytest.mark.convicted("DUPLICATE", because="a step is recorded after it has acted, and recovery runs it again")
def test_a_recovered_workflow_refunds_again(once: Once, migrated: Path) -> None:
    """S3.1, S3.9: a step of a durable workflow is run at least once."""
    run(once, migrated, "bare")


@pytest.mark.once_effect(soft_faults=0, ignore=DECIDES_NOTHING)
def test_a_step_with_a_key_of_the_intent_refunds_once(once: Once, migrated: Path) -> None:
    """S4.11: the step may be run again, since the provider knows it again."""
    run(once, migrated, "keyed")
