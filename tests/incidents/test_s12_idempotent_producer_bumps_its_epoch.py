"""S12: the broker recognises a batch by producer epoch and sequence; after an error the client bumps the epoch.

A batch that had been appended is sent again under the new identity. Reports: confluentinc/librdkafka#4953,
redpanda-data/redpanda#5355.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_once import Once, Verdict, explore
from tests.incidents.models import arrivals, by_fault_alone, cell, convicted, database, exactly_once

BATCHES = ("batch_a", "batch_b")


def produce(once: Once, *, bumps: bool) -> None:
    """Two batches; whatever was not acknowledged is sent again until it is."""
    broker = once.provider("broker", contract="client_key")
    with database(once, "producer", "session(epoch); acked(batch TEXT PRIMARY KEY)") as db:
        if not db.execute("SELECT 1 FROM session").fetchone():
            db.execute("INSERT INTO session VALUES (0)")
        for sequence, batch in enumerate(BATCHES):
            while not db.execute("SELECT 1 FROM acked WHERE batch = ?", (batch,)).fetchone():
                epoch = int(db.execute("SELECT epoch FROM session").fetchone()[0])
                try:
                    broker.call(f"append {batch}", {"batch": batch}, key=f"{epoch}/{sequence}")
                except ConnectionResetError:
                    if bumps and epoch < 2:
                        db.execute("UPDATE session SET epoch = epoch + 1")
                    continue
                db.execute("INSERT INTO acked VALUES (?)", (batch,))


def faulty(once: Once) -> None:
    produce(once, bumps=True)


@pytest.mark.slow
def test_the_bumped_epoch_makes_the_batch_another_one(tmp_path: Path) -> None:
    report = explore(faulty, faults=("reset-response",), limits={"max_boundaries": 10})
    violation = convicted(report, Verdict.DUPLICATE, expected=1, actual=2)
    assert violation.schedule.crashes == 0
    assert cell(report, "reset-response", "append batch_a") == "2x"
    first, second, *_ = arrivals(faulty, by_fault_alone(report)[0], tmp_path)
    assert (first.key, second.key) in {("0/0", "1/0"), ("0/0", "0/1")}


@pytest.mark.slow
def test_the_same_epoch_and_sequence_until_it_is_acknowledged() -> None:
    exactly_once(
        explore(lambda once: produce(once, bumps=False), faults=("reset-response",), limits={"max_boundaries": 10})
    )
