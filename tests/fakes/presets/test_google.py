"""Google's request_id and operations: accepted is not done, and a repetition finds the same operation."""

from __future__ import annotations

import time
import uuid

import httpx
import pytest

from once_fakes.held import deliver
from once_fakes.presets.google import GOOGLE_REQUEST_ID
from pytest_once import Once, Report, Verdict, explore
from pytest_once.clock import EPOCH_S
from pytest_once.ledger import Ledger
from tests.engine.bodies import put, state, tasks
from tests.fakes.presets.wire import Wire, shown

PATH = "/v1/projects/plant/locations/north/pumps"
ID = str(uuid.UUID(int=7))
PUMP = {"litres": 5}


@pytest.fixture
def google(ledger: Ledger) -> Wire:
    return Wire(ledger, GOOGLE_REQUEST_ID)


def test_an_operation_is_accepted_and_completes_later(google: Wire) -> None:
    """The first answer says nothing about what will become of it (S1.9)."""
    accepted = google.send("POST", f"{PATH}?pumpId=p7&requestId={ID}", PUMP)
    assert (accepted.status, shown(accepted)["done"]) == (200, False)
    name = shown(accepted)["name"]
    assert shown(google.send("GET", f"/v1/{name}"))["done"] is False
    assert shown(google.send("GET", PATH)) == {"pumps": []}
    assert [one["name"] for one in shown(google.send("GET", "/v1/operations"))["operations"]] == [name]

    google.ledger.set_now(EPOCH_S + 60)
    done = shown(google.send("GET", f"/v1/{name}"))
    assert (done["done"], done["response"]["litres"]) == (True, 5)
    assert done["response"]["name"] == "projects/plant/locations/north/pumps/p7"
    assert [one["litres"] for one in shown(google.send("GET", PATH))["pumps"]] == [5]


def test_an_operation_may_fail(google: Wire) -> None:
    """Who takes the acceptance for the effect reports something that never happened."""
    name = shown(google.send("POST", PATH, PUMP))["name"]
    deliver(google.ledger, 1, 1)
    failed = shown(google.send("GET", f"/v1/{name}"))
    assert (failed["done"], failed["error"]["code"], "response" in failed) == (True, 13, False)
    assert shown(google.send("GET", PATH)) == {"pumps": []}


@pytest.mark.parametrize("place", ["query", "snake query", "body", "snake body"])
def test_a_request_id_is_no_part_of_what_is_asked(google: Wire, place: str) -> None:
    """It may stand in the query or in the body, and identifies the request there as here."""
    name = "request_id" if "snake" in place else "requestId"
    path, body = (f"{PATH}?{name}={ID}", PUMP) if "query" in place else (PATH, {**PUMP, name: ID})
    first = google.send("POST", path, body)
    google.ledger.set_now(EPOCH_S + 60)
    again = google.send("POST", path, body)
    assert (shown(first)["done"], shown(again)["done"]) == (False, True)
    assert shown(first)["name"] == shown(again)["name"]
    assert [effect.payload for effect in google.ledger.effects()] == ['{"litres":5}']


@pytest.mark.parametrize("wrong", ["7", "0" * 8 + "-0000-0000-0000-" + "0" * 12, 7, ["x"]])
def test_a_request_id_must_be_a_uuid(google: Wire, wrong: object) -> None:
    """Nor may it be the zero UUID."""
    reply = google.send("POST", PATH, {**PUMP, "requestId": wrong})
    assert (reply.status, shown(reply)["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert google.ledger.arrivals() == []


def test_unknown_things_are_google_errors(google: Wire) -> None:
    """Code, message and status, as google.rpc.Status has them."""
    for method, path in (("GET", "/v1/operations/operation-9"), ("DELETE", PATH), ("GET", "/")):
        reply = google.send(method, path)
        error = shown(reply)["error"]
        assert (reply.status, error["code"], error["status"]) == (404, 404, "NOT_FOUND")


class NotCreated(Exception):
    """The operation failed: certainly no pump."""


class TooLate(Exception):
    """The request's identifier may have been forgotten."""


def create(reads_errors: bool) -> Report:
    """Create a pump once, and wait for the operation."""

    def body(once: Once) -> None:
        google = once.provider("google", contract=GOOGLE_REQUEST_ID)
        with tasks(once) as db, google.router:
            if state(db) == "done":
                return
            if state(db) is None:
                put(db, "begun", note=time.time())
            if time.time() - db.execute("SELECT note FROM tasks").fetchone()[0] > 3500:
                raise TooLate
            with httpx.Client(base_url=google.base_url, verify=False) as client:
                operation = client.post(f"{PATH}?requestId={ID}", json=PUMP).raise_for_status().json()
                while not operation["done"]:
                    time.sleep(1)
                    operation = client.get(f"/v1/{operation['name']}").raise_for_status().json()
            if reads_errors and "error" in operation:
                raise NotCreated
            put(db, "done", note=time.time())

    return explore(body, soft_faults=0, restart_after=("0s", "2h"), blocked=(TooLate,), definite_failure=(NotCreated,))


@pytest.mark.slow
def test_taking_done_for_created_is_convicted() -> None:
    """An operation that is done may have failed; the twin reads how it ended."""
    hasty = create(reads_errors=False)
    assert hasty.verdict is Verdict.OMISSION, (hasty.verdict, hasty.problem)
    patient = create(reads_errors=True)
    assert (patient.verdict, patient.coverage) == (Verdict.ESCALATED, "exhausted"), patient.problem
    assert patient.passed
