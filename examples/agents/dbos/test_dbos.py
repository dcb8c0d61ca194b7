"""DBOS: a workflow that was interrupted is recovered at launch, and a step without a recorded outcome is run again.

DBOS works with threads that look for something to do, now and then; so it runs as a program, by `once.process`, and
is cut where it asks the provider.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_once import Once

DECIDES_NOTHING = ("workflow_status.recovery_attempts", "*_at", "*_timestamp", "*_epoch_ms")
"""How often a workflow was recovered, which has no limit here; and times of the real clock, in whole seconds."""


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For each tool a directory with a system database, as a deployment makes it before any process starts."""
    directory = tmp_path_factory.mktemp("dbos")
    for tool in ("bare", "keyed"):
        (directory / tool).mkdir()
        command = [
            str(Path(sys.executable).parent / "dbos"),
            "migrate",
            "--sys-db-url",
            f"sqlite:///{directory}/{tool}/dbos.db",
        ]
        subprocess.run(command, check=True, capture_output=True)
    return directory


def run(once: Once, deployed: Path, tool: str) -> None:
    """One life of the worker."""
    database = once.track(deployed / tool) / "dbos.db"
    payments = once.provider("payments", contract="client_key")
    once.process(
        [sys.executable, "-m", "examples.agents.dbos.workflow", tool],
        env={"PAYMENTS_URL": payments.url, "DATABASE": str(database), "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout_s=30.0,
    )


@pytest.mark.once_effect(soft_faults=0, ignore=DECIDES_NOTHING)
@pytest.mark.convicted("DUPLICATE", because="a step is recorded after it has acted, and recovery runs it again")
def test_a_recovered_workflow_refunds_again(once: Once, deployed: Path) -> None:
    """S3.1, S3.9: a step of a durable workflow is run at least once."""
    run(once, deployed, "bare")


@pytest.mark.once_effect(soft_faults=0, ignore=DECIDES_NOTHING)
def test_a_step_with_a_key_of_the_intent_refunds_once(once: Once, deployed: Path) -> None:
    """S4.11: the step may be run again, since the provider knows it again."""
    run(once, deployed, "keyed")
