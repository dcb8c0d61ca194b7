"""Two consumers of a FIFO queue, which drops what is sent twice and still hands a message out more than once.

Run with `pytest --once-chaos examples/queue_consumer`. A test marked `convicted` holds code that is broken on purpose.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from examples.queue_consumer import consumer_broken, consumer_corrected
from examples.queue_consumer.queue import Queue
from once_fakes import contracts
from pytest_once import Once

# Sending is not what is tried here: the queue drops a repeated order for ever, not for 5 minutes only.
ORDERS = replace(contracts.sqs_fifo, name="orders", retention_s=None, replay_body="original")
# A minute later the message of a dead consumer can be had again.
RESTART_AFTER = ("1m",)
SHIPPED = "SELECT order_id, COUNT(*) FROM shipments GROUP BY order_id"
SIGNED = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20300101/eu-west-1/sqs/aws4_request"


def orders(once: Once) -> Queue:
    """The queue, with one order in it: whoever sends it sends it until it hears that it was sent."""
    endpoint = once.provider("sqs", contract=ORDERS).url
    queue = Queue(endpoint, f"{endpoint}/123456789012/orders.fifo", SIGNED)
    once.caller("order_123", queue.send, "order_123", group="orders", deduplication_id="order_123")
    return queue


@pytest.mark.once_effect(restart_after=RESTART_AFTER, faults=("lost-response",))
@pytest.mark.convicted("DUPLICATE", because="the shipment is committed before the message is deleted, and not with it")
def test_acting_before_deleting_ships_twice(once: Once, tmp_path: Path) -> None:
    """S3.2: at-least-once delivery reaches whoever does not expect it."""
    queue = orders(once)
    once.count(tmp_path / "shop.db", SHIPPED)
    consumer_broken.Consumer(tmp_path / "shop.db", queue, hidden_s=1).drain()


@pytest.mark.once_effect(restart_after=RESTART_AFTER, faults=("lost-response",))
def test_an_inbox_in_the_same_transaction_ships_once(once: Once, tmp_path: Path) -> None:
    """S2.4: what was handled is known by whatever handled it."""
    queue = orders(once)
    once.count(tmp_path / "shop.db", SHIPPED)
    consumer_corrected.Consumer(tmp_path / "shop.db", queue, hidden_s=1).drain()
