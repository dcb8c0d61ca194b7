"""Q23: two main instances without a leader hold the same timer, and both fire in the same second.

Two whole schedulers on one clock, not two workers under one scheduler. Reports: n8n-io/n8n#7045, n8n-io/n8n#16332.
"""

from __future__ import annotations

import asyncio
import time

from pytest_once import Once, Verdict, explore
from tests.incidents.models import convicted, convicted_undisturbed, database, exactly_once

EVERY_S = 60.0


async def instance(once: Once, *, keyed: bool) -> None:
    effects = once.provider("crm", contract="client_key")
    await asyncio.sleep(EVERY_S)
    slot = int(time.time() // EVERY_S)
    effects.call("sync", {"workflow": "workflow_1"}, key=f"workflow_1/{slot}" if keyed else None)


async def replicas(once: Once, count: int, *, keyed: bool) -> None:
    await asyncio.gather(*(instance(once, keyed=keyed) for _ in range(count)))


async def two_instances(once: Once) -> None:
    await replicas(once, 2, keyed=False)


async def once_a_slot(once: Once) -> None:
    await replicas(once, 2, keyed=True)


def test_both_instances_run_the_workflow() -> None:
    report = explore(two_instances, soft_faults=0, keys=["workflow_1"], redeliver=0)
    convicted_undisturbed(report, Verdict.DUPLICATE, expected=1, actual=2, key="workflow_1")


def test_the_slot_is_the_key_while_no_restart_makes_another_slot() -> None:
    """A restart fires in a later slot: that is another run of the workflow, and here it is one too many."""
    report = explore(once_a_slot, soft_faults=0, keys=["workflow_1"], redeliver=0)
    violation = convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="workflow_1")
    assert violation.schedule.crashes == 1


async def stored_slot(once: Once) -> None:
    """The slot is what is due, not what the clock says when the timer wakes."""
    effects = once.provider("crm", contract="client_key")
    with database(once, "scheduler", "slots(due_s REAL)") as db:
        if db.execute("SELECT 1 FROM slots").fetchone() is None:
            db.execute("INSERT INTO slots VALUES (?)", (time.time() + EVERY_S,))
        due_s = float(db.execute("SELECT due_s FROM slots").fetchone()[0])

        async def fire() -> None:
            await asyncio.sleep(max(0.0, due_s - time.time()))
            effects.call("sync", {"workflow": "workflow_1"}, key=f"workflow_1/{due_s}")

        await asyncio.gather(fire(), fire())


def test_a_stored_slot_is_a_key_for_all_instances_and_restarts() -> None:
    exactly_once(explore(stored_slot, soft_faults=0, keys=["workflow_1"]))
