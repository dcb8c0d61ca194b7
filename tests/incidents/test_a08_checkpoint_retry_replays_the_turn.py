"""A08: charge, mark and notify are one checkpoint unit, so whatever stops it repeats it from the start.

A commenter measured 209 repeated charges of 209, and none with a key at the write. Reports:
microsoft/agent-framework#3938, crewAIInc/crewAI#5802.
"""

from __future__ import annotations

from pytest_once import Once, Verdict, explore
from tests.incidents.models import cell, convicted, database, exactly_once

STEPS = ("charge", "mark", "notify")


def unit(once: Once, *, keyed: bool) -> None:
    with database(once, "engine", "checkpoints(unit)") as db:
        if db.execute("SELECT 1 FROM checkpoints").fetchone():
            return
        for step in STEPS:
            system = once.provider(step, contract="client_key")
            system.call("do", {"task": "task_1"}, key=f"task_1/{step}" if keyed else None)
        db.execute("INSERT INTO checkpoints VALUES ('task_1')")


def test_each_stop_after_the_charge_repeats_it() -> None:
    report = explore(lambda once: unit(once, keyed=False), soft_faults=0)
    violation = convicted(report, Verdict.DUPLICATE, expected=1, actual=2)
    assert violation.schedule.crashes == 1
    assert violation.key is not None and violation.key.provider == "charge"
    assert [cell(report, "crash", f"{step} do") for step in STEPS] == ["once", "2x", "2x"]
    assert cell(report, "crash", "INSERT INTO checkpoints") == "2x"


def test_keys_at_the_writes() -> None:
    exactly_once(explore(lambda once: unit(once, keyed=True), soft_faults=0))
