"""A refund task on Celery, as one makes it reliable: acknowledged late, and retried after a failure to connect."""

from __future__ import annotations

from typing import Any

import httpx
from celery import Celery  # type: ignore[import-untyped]

from examples.agents.refunds import Refund


def app(tool: Refund) -> Any:
    """The task of a worker's process."""
    worker = Celery("shop", set_as_current=False, broker="memory://", backend="cache+memory://")
    worker.conf.update(task_acks_late=True, task_reject_on_worker_lost=True)

    @worker.task(name="refund", autoretry_for=(httpx.TransportError,), retry_backoff=False, max_retries=3)  # type: ignore[untyped-decorator]
    def refund(order: str, amount: int) -> str:
        return tool(order, amount)

    return refund


def deliver(task: Any) -> str:
    """What a worker does with a message, retries included; the message's id stays the same."""
    message = {"args": ("order_123", 500), "task_id": "message_1"}
    return str(task.apply(**message, throw=True).get())
