"""Amazon SQS, FIFO and standard queues, in the JSON protocol: what is sent to them and how they take it.

A message sent is an effect; receiving and deleting it are none: `once_fakes.presets.queue` does that.
Not modelled: see `Sqs.not_modelled`. Sources: `Sqs.source`.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from once_fakes.contract import Contract
from once_fakes.dialect import Act, Ask, Dialect, Request, Shown, Tend
from once_fakes.presets.bodies import texts, uuid_of
from once_fakes.presets.documents import json_object
from once_fakes.presets.queue import Queue, QueueRefusal
from once_fakes.reply import Refusal, Reply

_TARGET = "AmazonSQS."
_TENDING = ("ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility", "GetQueueAttributes")
_TYPES = {
    "unauthorized": "MissingAuthenticationToken",
    "unknown_path": "UnknownOperationException",
    "unknown_action": "UnsupportedOperation",
    "method_not_allowed": "UnsupportedOperation",
    "malformed": "SerializationException",
    "no_queue": "QueueDoesNotExist",
    "field_missing": "MissingParameter",
    "not_sendable": "InvalidMessageContents",
    "bad_handle": "ReceiptHandleIsInvalid",
    "not_in_flight": "MessageNotInflight",
    "too_large": "RequestEntityTooLarge",
    "declined": "KmsAccessDenied",
    "failed": "InternalFailure",
    "unavailable": "ServiceUnavailable",
}
_QUERY_CODES = {
    "QueueDoesNotExist": "AWS.SimpleQueueService.NonExistentQueue",
    "UnsupportedOperation": "AWS.SimpleQueueService.UnsupportedOperation",
    "MessageNotInflight": "AWS.SimpleQueueService.MessageNotInflight",
}
"""What these errors were called in the query protocol, and in boto3 still are."""
_LONGEST_BODY_BYTES = 1024 * 1024
_SIGNED = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20300101/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=0"


class Sqs(Dialect):
    """SendMessage, ReceiveMessage, DeleteMessage, ChangeMessageVisibility and GetQueueAttributes.

    fifo: the queues are FIFO queues, whose names end in ".fifo". by_content: without MessageDeduplicationId the digest
    of the body is it.
    """

    source = (
        "https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html"
        " https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html"
        " https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_DeleteMessage.html"
        " https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/"
        "using-messagededuplicationid-property.html"
        " https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-json-api-responses.html"
        " https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/AboutTimestamp.html"
        " https://repost.aws/knowledge-center/sqs-receipt-handle-error"
    )
    not_modelled = (
        "signatures are not checked; every queue exists that is called as its kind is; batches, delays, dead-letter"
        " queues, receive counts and the message retention; a receive answers at once, however long it may wait, and"
        " hands out the oldest messages first; of a standard queue no message comes again by itself before its"
        " visibility time-out, nor after it was deleted: play that with a time-out of 0 or by not deleting"
    )

    def __init__(self, *, fifo: bool, by_content: bool = False) -> None:
        self._fifo = fifo
        self._by_content = by_content

    def understand(self, contract: Contract, request: Request) -> Act | Ask | Tend | Refusal:
        if request.method != "POST":
            return Refusal("method_not_allowed", 405, f"The method {request.method} is not supported.")
        if not request.account:
            return Refusal("unauthorized", 403, "Request is missing Authentication Token")
        target = request.headers.get("x-amz-target", "")
        action = target.removeprefix(_TARGET)
        if not target.startswith(_TARGET):
            return Refusal("unknown_path", 404, "The header X-Amz-Target names no action of AmazonSQS")
        asked = json_object(request)
        if isinstance(asked, Refusal):
            return asked
        if action != "SendMessage" and action not in _TENDING:
            return Refusal("unknown_action", 400, f"The action {action} is not supported.")
        queue = self._queue(asked)
        if isinstance(queue, Refusal):
            return queue
        if action in _TENDING:
            return Tend(f"{action} {queue}", asked)
        return self._send(contract, request, asked, queue)

    def _queue(self, asked: Mapping[str, Any]) -> str | Refusal:
        """The queue's account and name, without the address of the server, which is another one in every run."""
        url = texts(asked).get("QueueUrl")
        if url is None:
            return Refusal("field_missing", 400, "The request must contain the parameter QueueUrl.", "QueueUrl")
        try:
            parts = urlsplit(url).path.rstrip("/").split("/")[-2:]
        except ValueError:
            parts = []
        if len(parts) != 2 or not all(parts) or parts[1].endswith(".fifo") != self._fifo:
            return Refusal("no_queue", 400, "The specified queue does not exist.", "QueueUrl")
        return "/" + "/".join(parts)

    def _send(self, contract: Contract, request: Request, asked: dict[str, Any], queue: str) -> Act:
        key = texts(asked).get(str(contract.key_field))
        body = asked.get("MessageBody")
        if key is None and self._by_content and isinstance(body, str) and body:
            key = hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()
        payload = {name: value for name, value in asked.items() if name not in ("QueueUrl", contract.key_field)}
        return Act(f"SendMessage {queue}", payload, key, invalid=self._invalid(asked), region=request.region)

    def _invalid(self, asked: Mapping[str, Any]) -> Refusal | None:
        body = asked.get("MessageBody")
        if not isinstance(body, str) or not body:
            return Refusal("field_missing", 400, "The request must contain the parameter MessageBody.", "MessageBody")
        try:
            size = len(body.encode())
        except UnicodeEncodeError:
            message = "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF and up"
            return Refusal("not_sendable", 400, message, "MessageBody")
        if size > _LONGEST_BODY_BYTES:
            message = f"One or more parameters are invalid. Reason: Message must be shorter than {_LONGEST_BODY_BYTES}"
            return Refusal("invalid", 400, message, "MessageBody")
        group = asked.get("MessageGroupId")
        if self._fifo and not (isinstance(group, str) and group):
            message = "The request must contain the parameter MessageGroupId."
            return Refusal("field_missing", 400, message, "MessageGroupId")
        if not self._fifo and "MessageDeduplicationId" in asked:
            message = "The request include parameter that is not valid for this queue type"
            return Refusal("invalid", 400, message, "MessageDeduplicationId")
        return None

    def tend(self, contract: Contract, connection: sqlite3.Connection, provider: str, tend: Tend) -> Reply:
        action, _, name = tend.operation.partition(" ")
        queue = Queue(connection, provider, f"SendMessage {name}", self._fifo, self._message)
        try:
            return self.reply(200, queue.tend(action, tend.payload), "tended")
        except QueueRefusal as refused:
            return self.refuse(contract, refused.refusal)

    def _message(self, number: int, payload: Any) -> dict[str, Any]:
        """A message as a queue hands it out."""
        body = texts(payload).get("MessageBody", "")
        return {"MessageId": uuid_of(number), "MD5OfBody": _md5(body), "Body": body}

    def document(self, contract: Contract, shown: Shown) -> dict[str, Any]:
        body = texts(shown.payload).get("MessageBody", "")
        sent = {"MessageId": uuid_of(shown.number), "MD5OfMessageBody": _md5(body)}
        return {**sent, "SequenceNumber": f"{shown.number:020d}"} if self._fifo else sent

    def identifier(self, contract: Contract, shown: Shown) -> str:
        return uuid_of(shown.number)

    def acknowledgement(self, contract: Contract, shown: Shown) -> dict[str, Any]:
        return self.document(contract, shown)

    def refusal(self, contract: Contract, refusal: Refusal) -> tuple[int, dict[str, Any]]:
        kind = _TYPES.get(refusal.kind, "InvalidParameterValue")
        message = refusal.message
        if refusal.kind == "key_missing":
            message = "The queue should have ContentBasedDeduplication enabled, or MessageDeduplicationId be provided"
        return refusal.status, {"__type": f"com.amazonaws.sqs#{kind}", "message": message}

    def encode(self, body: dict[str, Any]) -> tuple[str, bytes]:
        return "application/x-amz-json-1.0", super().encode(body)[1]

    def reply(
        self,
        status: int,
        body: dict[str, Any],
        outcome: str,
        *,
        headers: Mapping[str, str] | None = None,
        arrival: int | None = None,
    ) -> Reply:
        marks = {"x-amzn-requestid": uuid_of(arrival or 0)}
        if "__type" in body:
            kind = body["__type"].partition("#")[2]
            whose = "Receiver" if status >= 500 else "Sender"
            marks["x-amzn-query-error"] = f"{_QUERY_CODES.get(kind, kind)};{whose}"
        return super().reply(status, body, outcome, headers={**(headers or {}), **marks}, arrival=arrival)

    def example(self, contract: Contract, key: str | None, variant: int = 0) -> Request:
        asked = {"QueueUrl": self._url, "MessageBody": f"pay {100 + variant} for {key}"}
        if self._fifo:
            asked["MessageGroupId"] = "payments"
            if key is not None:
                asked["MessageDeduplicationId"] = key
            elif self._by_content:
                asked["MessageBody"] = ""  # any other has an identity
        return _request("SendMessage", asked)

    def example_lookup(self, contract: Contract, reference: str | None) -> Request:
        return _request("ReceiveMessage", {"QueueUrl": self._url})

    @property
    def _url(self) -> str:
        return f"https://sqs.us-east-1.amazonaws.com/123456789012/orders{'.fifo' if self._fifo else ''}"


def _request(action: str, asked: Mapping[str, Any]) -> Request:
    headers = {
        "content-type": "application/x-amz-json-1.0",
        "x-amz-target": f"{_TARGET}{action}",
        "authorization": _SIGNED,
    }
    return Request("POST", "/", "", headers, json.dumps(asked).encode("ascii"))


def _md5(text: str) -> str:
    return hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()


FIFO = Sqs(fifo=True)
FIFO_BY_CONTENT = Sqs(fifo=True, by_content=True)
STANDARD = Sqs(fifo=False)

SQS_FIFO = Contract(
    name="sqs_fifo",
    dialect="once_fakes.presets.sqs:FIFO",
    key_field="MessageDeduplicationId",
    max_key_length=128,
    scope=("endpoint", "region"),
    on_mismatch="replay",
    on_missing_key="error",
    replay_body="unspecified",
    replay_header="",
    retention_s=300.0,
    request_lifetime_s=900.0,
)
"""A deduplication id is known for 5 min within its queue; whatever comes under it then is acknowledged and dropped."""

SQS_FIFO_BY_CONTENT = replace(SQS_FIFO, name="sqs_fifo_by_content", dialect="once_fakes.presets.sqs:FIFO_BY_CONTENT")
"""The same queue with content-based deduplication."""

SQS_STANDARD = Contract(
    name="sqs_standard",
    dialect="once_fakes.presets.sqs:STANDARD",
    dedup="none",
    replay_header="",
    request_lifetime_s=900.0,
)
"""Every message sent is another one. A signature, so a request, is good for 15 min."""
