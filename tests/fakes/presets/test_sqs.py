"""SQS: deduplication of what is sent, and the visibility time-out of what is received."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest

from once_fakes import Contract, Reply, contracts
from once_fakes.held import deliver
from pytest_once import Once, Verdict, explore
from pytest_once.ledger import Ledger
from tests.fakes.presets.wired import Wired

SIGNED = "AWS4-HMAC-SHA256 Credential=AKID/20300101/eu-west-1/sqs/aws4_request, SignedHeaders=host, Signature=0"
HEADERS = {"authorization": SIGNED, "content-type": "application/x-amz-json-1.0"}


class Queue:
    """A queue of a contract, and what is asked of it."""

    def __init__(self, ledger: Ledger, contract: str) -> None:
        self.wired = Wired(ledger, contract, HEADERS)
        self.url = f"https://sqs.test/123456789012/orders{'.fifo' if 'fifo' in contract else ''}"

    def ask(self, action: str, **asked: Any) -> Reply:
        target = f"AmazonSQS.{action}"
        sent = {"QueueUrl": self.url, **asked}
        return self.wired.json("/", sent, x_amz_target=target, content_type="application/x-amz-json-1.0")

    def put(self, body: str, group: str = "g", **asked: Any) -> Reply:
        return self.ask("SendMessage", MessageBody=body, MessageGroupId=group, **asked)

    def receive(self, **asked: Any) -> list[dict[str, Any]]:
        answer = self.ask("ReceiveMessage", **asked)
        assert answer.status == 200, answer.body
        found: list[dict[str, Any]] = answer.body.get("Messages", [])
        return found

    def bodies(self, **asked: Any) -> list[str]:
        return [message["Body"] for message in self.receive(**asked)]


@pytest.fixture
def fifo(ledger: Ledger) -> Queue:
    return Queue(ledger, "sqs_fifo")


@pytest.fixture
def standard(ledger: Ledger) -> Queue:
    return Queue(ledger, "sqs_standard")


def error(reply: Reply) -> tuple[int, str]:
    assert reply.headers["content-type"] == "application/x-amz-json-1.0"
    assert reply.body.keys() == {"__type", "message"}
    return reply.status, reply.body["__type"].removeprefix("com.amazonaws.sqs#")


def test_a_deduplication_id_is_known_for_five_minutes(fifo: Queue) -> None:
    """Whatever comes under it is acknowledged and dropped, another body too, deleted or not."""
    first = fifo.put("one", MessageDeduplicationId="d")
    (received,) = fifo.receive()
    fifo.ask("DeleteMessage", ReceiptHandle=received["ReceiptHandle"])
    fifo.wired.pass_time(299)
    dropped = fifo.put("another", MessageDeduplicationId="d")
    assert (first.status, dropped.status, fifo.bodies()) == (200, 200, [])
    fifo.wired.pass_time(1)
    fifo.put("one", MessageDeduplicationId="d")
    assert (fifo.bodies(), fifo.wired.effects) == (["one"], 2)


def test_an_id_is_a_queues_own(fifo: Queue) -> None:
    """The queue's name counts, not the address under which the server is reached today."""
    fifo.put("one", MessageDeduplicationId="d")
    fifo.put("one", MessageDeduplicationId="d", QueueUrl="http://127.0.0.1:5/t/sqs/123456789012/orders.fifo")
    assert fifo.wired.effects == 1
    fifo.put("one", MessageDeduplicationId="d", QueueUrl="https://sqs.test/123456789012/others.fifo")
    assert (fifo.wired.effects, fifo.bodies(MaxNumberOfMessages=10)) == (2, ["one"])


def test_content_can_be_the_id(ledger: Ledger) -> None:
    """Without an id the digest of the body is it, the attributes not counted; an explicit one goes before it."""
    queue = Queue(ledger, "sqs_fifo_by_content")
    for attributes in ({}, {"a": {"DataType": "String", "StringValue": "1"}}):
        queue.put("one", MessageAttributes=attributes)
    queue.put("two")
    queue.put("one", MessageDeduplicationId="d")
    assert queue.wired.effects == 3


def test_every_message_of_a_standard_queue_is_another(standard: Queue) -> None:
    """No deduplication, and no group is needed."""
    for _ in range(2):
        assert standard.ask("SendMessage", MessageBody="one").status == 200
    assert (standard.bodies(MaxNumberOfMessages=10), standard.wired.effects) == (["one", "one"], 2)


def test_a_received_message_is_hidden_until_its_time_out(standard: Queue) -> None:
    """A consumer that dies gives the message back by saying nothing."""
    standard.ask("SendMessage", MessageBody="one")
    (first,) = standard.receive(VisibilityTimeout=30)
    counts = {"ApproximateNumberOfMessages": "0", "ApproximateNumberOfMessagesNotVisible": "1"}
    assert standard.ask("GetQueueAttributes", AttributeNames=["All"]).body["Attributes"] == counts
    standard.wired.pass_time(29.9)
    assert standard.receive() == []
    standard.wired.pass_time(0.1)
    (second,) = standard.receive()
    assert (first["MessageId"], first["ReceiptHandle"] == second["ReceiptHandle"]) == (second["MessageId"], False)
    assert standard.ask("DeleteMessage", ReceiptHandle=first["ReceiptHandle"]).status == 200
    standard.wired.pass_time(31)
    (third,) = standard.receive()  # the older handle deleted nothing
    for _ in range(2):
        assert standard.ask("DeleteMessage", ReceiptHandle=third["ReceiptHandle"]).status == 200
    standard.wired.pass_time(31)
    assert standard.receive() == []
    assert standard.wired.effects == 1


def test_a_handle_of_a_fifo_queue_expires(fifo: Queue) -> None:
    """Whoever was too slow hears of it."""
    fifo.put("one", MessageDeduplicationId="d")
    (message,) = fifo.receive(VisibilityTimeout=5)
    fifo.wired.pass_time(5)
    expired = fifo.ask("DeleteMessage", ReceiptHandle=message["ReceiptHandle"])
    assert error(expired) == (400, "InvalidParameterValue")
    assert "expired" in expired.body["message"]
    late = fifo.ask("ChangeMessageVisibility", ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=60)
    assert error(late) == (400, "MessageNotInflight")
    assert fifo.bodies() == ["one"]


def test_a_time_out_can_be_prolonged(fifo: Queue) -> None:
    """A heartbeat keeps the message, and the handle stays good."""
    fifo.put("one", MessageDeduplicationId="d")
    (message,) = fifo.receive(VisibilityTimeout=5)
    handle = {"ReceiptHandle": message["ReceiptHandle"]}
    assert fifo.ask("ChangeMessageVisibility", **handle, VisibilityTimeout=60).status == 200
    fifo.wired.pass_time(59)
    assert fifo.receive() == []
    assert fifo.ask("DeleteMessage", **handle).status == 200
    fifo.wired.pass_time(60)
    assert fifo.receive() == []


def test_a_group_of_a_fifo_queue_is_in_order(fifo: Queue) -> None:
    """While one of its messages is out, the next ones wait; other groups do not."""
    for body, group in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        fifo.put(body, group, MessageDeduplicationId=body)
    assert (fifo.bodies(), fifo.bodies(MaxNumberOfMessages=10)) == (["a1"], ["b1"])
    fifo.wired.pass_time(30)
    assert fifo.bodies(MaxNumberOfMessages=10) == ["a1", "a2", "b1"]


def test_attributes_are_told_to_whoever_asks(fifo: Queue) -> None:
    """Nothing is told unasked, as the real one does."""
    given = {"kind": {"DataType": "String", "StringValue": "order"}}
    fifo.put("one", MessageDeduplicationId="d", MessageAttributes=given)
    (plain,) = fifo.receive(VisibilityTimeout=0)
    (full,) = fifo.receive(AttributeNames=["MessageGroupId"], MessageAttributeNames=["All"])
    assert not {"Attributes", "MessageAttributes"} & plain.keys()
    assert (full["Attributes"], full["MessageAttributes"]) == ({"MessageGroupId": "g"}, given)


def test_what_is_wrong_has_a_type(fifo: Queue, standard: Queue) -> None:
    """SDKs raise by it."""
    answers = [
        fifo.ask("SendMessage", MessageBody="one", MessageDeduplicationId="d"),
        fifo.put("one"),
        fifo.put("one", MessageDeduplicationId="d" * 129),
        fifo.put("", MessageDeduplicationId="d"),
        fifo.put("\ud800", MessageDeduplicationId="d"),
        fifo.put("one", QueueUrl="https://sqs.test/1/orders"),
        fifo.put("one", QueueUrl="https://[/1/orders.fifo"),
        fifo.ask("SendMessageBatch"),
        fifo.ask("ReceiveMessage", MaxNumberOfMessages=11),
        fifo.ask("ReceiveMessage", VisibilityTimeout=True),
        fifo.ask("DeleteMessage", ReceiptHandle="AQEB-1-1"),
        fifo.ask("DeleteMessage"),
        standard.ask("SendMessage", MessageBody="one", MessageDeduplicationId="d"),
    ]
    assert [error(answer) for answer in answers] == [
        (400, "MissingParameter"),
        (400, "InvalidParameterValue"),
        (400, "InvalidParameterValue"),
        (400, "MissingParameter"),
        (400, "InvalidMessageContents"),
        (400, "QueueDoesNotExist"),
        (400, "QueueDoesNotExist"),
        (400, "UnsupportedOperation"),
        (400, "InvalidParameterValue"),
        (400, "InvalidParameterValue"),
        (400, "ReceiptHandleIsInvalid"),
        (400, "MissingParameter"),
        (400, "InvalidParameterValue"),
    ]
    assert answers[5].headers["x-amzn-query-error"] == "AWS.SimpleQueueService.NonExistentQueue;Sender"
    assert fifo.wired.ask("GET", "/").status == 405
    assert error(fifo.wired.ask("POST", "/", b"{", x_amz_target="AmazonSQS.SendMessage"))[1] == "SerializationException"
    assert fifo.wired.effects == 0


def test_a_request_held_up_still_takes_a_message(standard: Queue, ledger: Ledger) -> None:
    """A receive that arrives late hides a message from everybody, and its answer is heard by nobody."""
    standard.ask("SendMessage", MessageBody="one")
    body = b'{"QueueUrl": "https://sqs.test/123456789012/orders"}'
    headers = {**HEADERS, "x-amz-target": "AmazonSQS.ReceiveMessage"}
    ledger.hold("sqs_standard", "POST /", {"method": "POST", "path": "/", "headers": headers, "body": body})
    reply = deliver(ledger, 1)
    assert reply is not None
    assert (reply.outcome, standard.receive()) == ("tended", [])


def sending(contract: Contract) -> Callable[[Once], None]:
    """Send one message, with the order as its deduplication id where the queue has such."""
    fifo = contract.dedup == "client_key"
    asked = {"QueueUrl": f"https://sqs.test/1/orders{'.fifo' if fifo else ''}", "MessageBody": "order 1"}
    if fifo:
        asked |= {"MessageGroupId": "orders", "MessageDeduplicationId": "order-1"}

    def body(once: Once) -> None:
        sqs = once.provider("sqs", contract=contract)
        headers = {**HEADERS, "x-amz-target": "AmazonSQS.SendMessage"}
        with sqs.router:
            httpx.post(sqs.base_url, json=asked, headers=headers).raise_for_status()

    return body


@pytest.mark.parametrize(
    ("contract", "verdict"),
    [
        (contracts.sqs_standard, Verdict.DUPLICATE),
        (contracts.sqs_fifo, Verdict.DUPLICATE),
        (replace(contracts.sqs_fifo, name="kept", retention_s=None), Verdict.EXACTLY_ONCE),
    ],
    ids=["standard", "six minutes later", "while the id is known"],
)
def test_an_id_protects_a_sender_for_as_long_as_it_is_known(contract: Contract, verdict: Verdict) -> None:
    """S3.2: a restart after the five minutes is convicted, though the sender's id is the right one."""
    report = explore(sending(contract), profile="crash", restart_after=("6m",))
    assert report.verdict is verdict, report.problem
    assert verdict is Verdict.DUPLICATE or report.coverage == "exhausted"
