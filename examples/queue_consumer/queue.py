"""A queue of Amazon SQS, with no more than the consumers need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx

TLS = httpx.create_ssl_context()  # reading the certificates takes longer than all the rest


@dataclass(frozen=True, slots=True)
class Message:
    """What is in a message, and the handle to delete it with."""

    id: str
    body: str
    receipt_handle: str


class Queue:
    """endpoint: the service's address. authorization: of each request; a real queue wants it signed, as SDKs do."""

    def __init__(self, endpoint: str, queue_url: str, authorization: str) -> None:
        self._endpoint = endpoint
        self._queue_url = queue_url
        self._authorization = authorization

    def send(self, body: str, group: str, deduplication_id: str) -> None:
        """Send a message; the queue drops another one with this id for 5 minutes."""
        self._ask("SendMessage", MessageBody=body, MessageGroupId=group, MessageDeduplicationId=deduplication_id)

    def receive(self, hidden_s: int) -> Message | None:
        """The oldest message that nobody has; nobody else gets it for so many seconds."""
        answer = self._ask("ReceiveMessage", MaxNumberOfMessages=1, VisibilityTimeout=hidden_s)
        for one in answer.get("Messages", ()):
            return Message(one["MessageId"], one["Body"], one["ReceiptHandle"])
        return None

    def delete(self, message: Message) -> None:
        """The message is dealt with."""
        self._ask("DeleteMessage", ReceiptHandle=message.receipt_handle)

    def _ask(self, action: str, **parameters: Any) -> dict[str, Any]:
        headers = {
            "Content-Type": "application/x-amz-json-1.0",
            "X-Amz-Target": f"AmazonSQS.{action}",
            "Authorization": self._authorization,
        }
        with httpx.Client(timeout=30.0, verify=TLS) as client:
            response = client.post(
                self._endpoint, headers=headers, json={"QueueUrl": self._queue_url, **parameters}
            ).raise_for_status()
        answer: dict[str, Any] = response.json()
        return answer
