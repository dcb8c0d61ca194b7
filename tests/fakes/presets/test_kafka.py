"""Kafka's idempotent producer: a session knows its own batches, and no other session does."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from once_fakes.presets.kafka import KAFKA_PRODUCER
from pytest_once import Once, Report, Verdict, explore
from pytest_once.ledger import Ledger
from tests.engine.bodies import put, state, tasks
from tests.fakes.presets.wire import Wire, shown

PATH = "/topics/readings"


def batch(sequence: int | None, producer: int = 7, value: int = 5) -> dict[str, Any]:
    body: dict[str, Any] = {"records": [{"key": "pump7", "value": {"litres": value}}]}
    session = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
    return body if sequence is None else {**body, **session}


@pytest.fixture
def kafka(ledger: Ledger) -> Wire:
    return Wire(ledger, KAFKA_PRODUCER)


def test_a_batch_is_recognised_within_its_session(kafka: Wire) -> None:
    """A resend by the same producer is acknowledged; a producer that starts again is a stranger."""
    first = kafka.send("POST", PATH, batch(0))
    assert (first.status, shown(first)["offsets"][0]["offset"]) == (200, 0)
    assert first.headers["content-type"] == "application/vnd.kafka.v2+json"
    assert shown(kafka.send("POST", PATH, batch(0)))["offsets"][0]["error_code"] is None
    assert len(kafka.ledger.effects()) == 1
    kafka.send("POST", PATH, batch(0, producer=8))
    kafka.send("POST", "/topics/alarms", batch(0))
    kafka.send("POST", PATH, batch(None))
    assert [effect.payload for effect in kafka.ledger.effects()] == [kafka.ledger.effects()[0].payload] * 4
    assert kafka.outcomes == ["executed", "replayed", "executed", "executed", "executed"]


def test_a_gap_is_refused_in_the_offsets(kafka: Wire) -> None:
    """The proxy answers 200 and names the error beside the record: who does not look loses it."""
    kafka.send("POST", PATH, batch(0))
    refused = kafka.send("POST", PATH, batch(2))
    assert (refused.status, shown(refused)["offsets"][0]["error_code"]) == (200, 1)
    assert len(kafka.ledger.effects()) == 1


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, 422),
        ({"records": []}, 422),
        ({**batch(0), "base_sequence": "0"}, 422),
        ({**batch(0), "producer_id": 2**31}, 422),
        (b"[", 400),
    ],
)
def test_what_the_proxy_refuses(kafka: Wire, body: object, code: int) -> None:
    """Its errors have a code of their own."""
    reply = kafka.send("POST", PATH, body)
    assert (reply.status, shown(reply)["error_code"]) == (code, code)
    assert shown(kafka.send("POST", "/topics/no!", batch(0)))["error_code"] == 40401
    assert kafka.send("GET", PATH).status == 405
    assert kafka.ledger.effects() == []


def produce(remembers: bool) -> Report:
    """Send one reading; the producer's session is new in each life, or kept with the reading."""

    def body(once: Once) -> None:
        kafka = once.provider("kafka", contract=KAFKA_PRODUCER)
        with tasks(once) as db, kafka.router:
            if state(db) == "done":
                return
            lives = int(state(db, "lives") or 0) + 1
            if lives < 4:
                put(db, str(lives), "lives")
            with httpx.Client(base_url=kafka.base_url, verify=False) as client:
                sent = batch(0, producer=1 if remembers else lives)
                answer = client.post(PATH, json=sent).raise_for_status().json()
            if answer["offsets"][0]["error_code"] is not None:
                raise RuntimeError("not appended")
            put(db, "done")

    return explore(body, soft_faults=0)


def test_a_restarted_producer_appends_again() -> None:
    """An idempotent producer is not an exactly-once process: the session must outlive it."""
    assert produce(remembers=False).verdict is Verdict.DUPLICATE
    kept = produce(remembers=True)
    assert (kept.verdict, kept.coverage) == (Verdict.EXACTLY_ONCE, "exhausted"), kept.problem
