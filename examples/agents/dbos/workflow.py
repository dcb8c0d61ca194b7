"""A durable workflow on DBOS with one step, the refund. As a program, `workflow.py bare|keyed`, a life of a worker."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dbos import DBOS, DBOSConfig, SetWorkflowID

from examples.agents.refunds import Refund, keyed, unprotected

WORKFLOW = "refund of order_123"


def work(database: Path, tool: Refund) -> str:
    """Start the workflow, or wait for the one that DBOS has recovered at launch."""
    config: DBOSConfig = {
        "name": "shop",
        "system_database_url": f"sqlite:///{database}",
        "application_version": "1",
        "executor_id": "worker",
        "log_level": "ERROR",
        "notification_listener_polling_interval_sec": 0.01,
    }
    DBOS(config=config)

    @DBOS.step()
    def pay(order: str, amount: int) -> str:
        return tool(order, amount)

    @DBOS.workflow(max_recovery_attempts=None)
    def refund(order: str, amount: int) -> str:
        return pay(order, amount)

    DBOS.launch()
    try:
        if DBOS.get_workflow_status(WORKFLOW) is None:
            with SetWorkflowID(WORKFLOW):
                return refund("order_123", 500)
        return str(DBOS.retrieve_workflow(WORKFLOW).get_result(polling_interval_sec=0.02))
    finally:
        DBOS.destroy()


if __name__ == "__main__":
    make = {"bare": unprotected, "keyed": keyed}[sys.argv[1]]
    work(Path(os.environ["DATABASE"]), make(os.environ["PAYMENTS_URL"]))
