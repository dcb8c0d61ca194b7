"""A Kafka topic behind a small REST proxy, with the idempotent producer's sessions.

Sources: https://kafka.apache.org/documentation/#semantics and
https://cwiki.apache.org/confluence/display/KAFKA/KIP-98+-+Exactly+Once+Delivery+and+Transactional+Messaging (a producer
has an id and an epoch from the broker, and numbers its batches for each partition; a batch seen before is acknowledged
and not appended; a gap is OUT_OF_ORDER_SEQUENCE_NUMBER; a producer that starts again gets another id, so the broker
knows nothing of what it sent before), https://docs.confluent.io/platform/current/kafka-rest/api.html (paths, bodies and
error documents of the proxy).

POST /topics/<topic> with {"records": [{"key": …, "value": …}]}; "producer_id", "producer_epoch" and "base_sequence"
beside the records take the place of the producer's protocol, which no HTTP proxy exposes. The records of one request
go to one partition, and are one effect.

Not modelled: several partitions, consuming, transactions and the fencing of epochs by `transactional.id`, the broker's
memory of only the last five batches, its forgetting of idle producers.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import Any

from once_fakes.contract import Contract
from once_fakes.dialect import Act, Ask, Dialect, Request, Shown
from once_fakes.presets.documents import json_object, json_request
from once_fakes.reply import Refusal

_TOPIC = re.compile(r"/topics/([A-Za-z0-9._-]{1,249})")
_INT32 = 2**31 - 1
_SESSION = ("producer_id", "producer_epoch", "base_sequence")
_CODES = {
    "unknown_path": 40401,
    "not_found": 40401,
    "invalid": 422,
    "malformed": 400,
    "unavailable": 50003,
    "failed": 50002,
}


class Kafka(Dialect):
    """Every topic exists, with one partition."""

    source = (
        "https://cwiki.apache.org/confluence/display/KAFKA/KIP-98+-+Exactly+Once+Delivery+and+Transactional+Messaging"
    )
    not_modelled = "several partitions, consuming, transactions, fencing, the broker's forgetting"

    def understand(self, contract: Contract, request: Request) -> Act | Ask | Refusal:
        topic = _TOPIC.fullmatch(request.path)
        if topic is None:
            return Refusal("unknown_path", 404, "HTTP 404 Not Found")
        if request.method != "POST":
            return Refusal("method_not_allowed", 405, "HTTP 405 Method Not Allowed")
        body = json_object(request)
        if isinstance(body, Refusal):
            return body
        session = [body.pop(name, None) for name in _SESSION]
        act = Act(f"POST {request.path}", body, invalid=_invalid(body))
        if session == [None, None, None]:
            return act
        if not all(type(one) is int and 0 <= one <= _INT32 for one in session):
            message = f"{', '.join(_SESSION)} must be whole numbers from 0 to {_INT32}"
            return replace(act, invalid=Refusal("invalid", 422, message, "base_sequence"))
        producer, epoch, sequence = session
        return replace(act, sequence=(f"{producer}/{epoch}/{topic[1]}", sequence))

    def document(self, contract: Contract, shown: Shown) -> dict[str, Any]:
        return _offsets({"partition": 0, "offset": shown.number - 1, "error_code": None, "error": None})

    def identifier(self, contract: Contract, shown: Shown) -> str:
        return str(shown.number - 1)

    def acknowledgement(self, contract: Contract, shown: Shown) -> dict[str, Any]:
        return _offsets({"partition": 0, "offset": None, "error_code": None, "error": None})

    def refusal(self, contract: Contract, refusal: Refusal) -> tuple[int, dict[str, Any]]:
        if refusal.kind == "out_of_order":
            message = "The broker received an out of order sequence number."
            # The proxy answers 200: its errors are those of single records. 1: trying again does not help.
            return 200, _offsets({"partition": None, "offset": None, "error_code": 1, "error": message})
        return refusal.status, {"error_code": _CODES.get(refusal.kind, refusal.status), "message": refusal.message}

    def encode(self, body: dict[str, Any]) -> tuple[str, bytes]:
        return "application/vnd.kafka.v2+json", super().encode(body)[1]

    def example(self, contract: Contract, key: str | None, variant: int = 0) -> Request:
        body: dict[str, Any] = {"records": [{"key": "pump7", "value": {"litres": 100 + variant}}]}
        if key is not None:
            body |= {
                "producer_id": int.from_bytes(hashlib.sha256(key.encode()).digest()[:3]),
                "producer_epoch": 0,
                "base_sequence": 0,
            }
        return json_request("POST", "/topics/readings", body, {"content-type": "application/vnd.kafka.json.v2+json"})


KAFKA = Kafka()

KAFKA_PRODUCER = Contract(
    name="kafka_producer",
    dialect="once_fakes.presets.kafka:KAFKA",
    dedup="session_sequence",
    session_field="producer_id",
    sequence_field="base_sequence",
    replay_body="ack_only",
    replay_header="",
)
"""A batch is recognised within one producer's session; a producer that starts again is a stranger."""


def _offsets(*offsets: dict[str, Any]) -> dict[str, Any]:
    return {"key_schema_id": None, "value_schema_id": None, "offsets": list(offsets)}


def _invalid(body: dict[str, Any]) -> Refusal | None:
    records = body.get("records")
    if isinstance(records, list) and records and all(isinstance(one, dict) and "value" in one for one in records):
        return None
    return Refusal("invalid", 422, "records must be a list, not empty, of objects with a value", "records")
