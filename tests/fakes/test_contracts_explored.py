"""The parameters of a contract, explored: each is there because some code is right under one value and wrong under
another."""

from __future__ import annotations

import sqlite3
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import httpx
import pytest

from once_fakes import CLIENT_KEY, CLIENT_KEY_24H, NONE, Contract, Provider, Reply
from pytest_once import Once, Verdict, explore, replay
from pytest_once.boundaries import Boundary
from pytest_once.faults import mark_of
from tests.engine.bodies import told

SEEN_AT_ONCE = replace(NONE, name="seen_at_once", lookup="by_client_ref")
SEEN_LATER = replace(SEEN_AT_ONCE, name="seen_later", visibility_lag_s=60)
LISTED = replace(SEEN_AT_ONCE, name="listed", lookup="list_only")
SEEN_BRIEFLY_HELD = replace(SEEN_AT_ONCE, name="held_briefly", request_lifetime_s=60)
BY_ORDER = Contract(name="by_order", dedup="natural_key", natural_key_field="client_ref")
FREED = replace(BY_ORDER, name="freed", retention_s=3600)
FENCED = replace(FREED, name="fenced", fencing="token", fence_field="token")
WINDOW = Contract(name="window", dedup="content_window", window_s=30)
VERSIONED = Contract(name="versioned", dedup="conditional", version_field="version")
SESSIONS = Contract(name="sessions", dedup="session_sequence", session_field="session", sequence_field="number")
BY_ENDPOINT = replace(CLIENT_KEY, name="by_endpoint", scope=("endpoint",))
BY_SESSION = replace(CLIENT_KEY, name="by_session", scope=("session",))
OF_AMOUNT = replace(CLIENT_KEY, name="of_amount", fingerprint_fields=("client_ref", "amount"))
REPLAYS = replace(CLIENT_KEY, name="mismatch_replays", on_mismatch="replay")
EXECUTES = replace(CLIENT_KEY, name="mismatch_executes", on_mismatch="execute")
OPEN = replace(CLIENT_KEY, name="mismatch_open", on_mismatch="unspecified")
STRICT = replace(CLIENT_KEY, name="strict", on_missing_key="error")
LONG_KEYS = replace(CLIENT_KEY, name="long_keys", max_key_length=500)
KEY_INSIDE = replace(CLIENT_KEY, name="key_inside", key_field="idempotency_key")
BARE = replace(CLIENT_KEY, name="bare_acknowledgement", replay_body="ack_only")
ACCEPTS = replace(CLIENT_KEY, name="accepts", acceptance="async202")
ACCEPTS_AND_SHOWS = replace(ACCEPTS, name="accepts_and_shows", replay_body="current_state")
AT_LEAST_45_DAYS = replace(CLIENT_KEY, name="45_days", retention_s=(45 * 86400, None))
AT_LEAST_AN_HOUR = replace(CLIENT_KEY, name="an_hour", retention_s=(3600, 172800))
NOBODY_KNOWS = replace(CLIENT_KEY, name="nobody_knows", retention_s="unspecified")
DROPS_INVALID = replace(CLIENT_KEY, name="drops_invalid", dialect="tests.fakes.insisting:INSISTS")
KEEPS_INVALID = replace(DROPS_INVALID, name="keeps_invalid", record_point="arrival", stored_outcomes="success_and_4xx")

REFUND = {"client_ref": "order_1", "amount": 5}


class TryAgain(Exception):
    """No answer that says it is done: another start will try."""


class Failed(Exception):
    """Certainly no effect."""


def settled(reply: Reply, *done: int) -> None:
    if reply.status not in (200, 202, *done):
        raise TryAgain(reply.status)


def keyed(pay: Provider) -> None:
    settled(pay.call("refund", REFUND, key="order_1"))


def looked_up(pay: Provider) -> None:
    if pay.find("order_1").status == 404:
        settled(pay.call("refund", REFUND))


def searched_in_the_list(pay: Provider) -> None:
    if not any(one["payload"] == REFUND for one in pay.list().body["data"]):
        settled(pay.call("refund", REFUND))


def asked_over_http(pay: Provider) -> None:
    with pay.router, httpx.Client(verify=False, base_url=pay.base_url) as client:
        if client.get("/refunds/order_1").status_code != 200:
            client.post("/refunds", json=REFUND).raise_for_status()


def refusal_means_done(pay: Provider) -> None:
    settled(pay.call("refund", REFUND), 409)


def created_if_absent(pay: Provider) -> None:
    settled(pay.call("PUT /refunds/order_1", {**REFUND, "version": "0"}), 409)


def numbered_in_one_session(pay: Provider) -> None:
    settled(pay.call("refund", {**REFUND, "session": "worker", "number": 0}))


def numbered_in_a_new_session(pay: Provider) -> None:
    settled(pay.call("refund", {**REFUND, "session": str(uuid.uuid4()), "number": 0}, key="order_1"), 422)


def tried_at_another_endpoint(pay: Provider) -> None:
    try:
        settled(pay.call("refund", REFUND, key="order_1"), 422)
    except TimeoutError:
        settled(pay.call("refund/instant", REFUND, key="order_1"), 422)


def in_a_new_session(pay: Provider) -> None:
    headers = {"idempotency-key": "order_1", "once-session": str(uuid.uuid4())}
    with pay.router, httpx.Client(verify=False, base_url=pay.base_url) as client:
        client.post("/refunds", json=REFUND, headers=headers).raise_for_status()


def stamped(pay: Provider) -> None:
    settled(pay.call("refund", {**REFUND, "trace": str(uuid.uuid4())}, key="order_1"))


def stamped_and_refusal_means_done(pay: Provider) -> None:
    settled(pay.call("refund", {**REFUND, "trace": str(uuid.uuid4())}, key="order_1"), 422)


def without_a_key_unless_it_must(pay: Provider) -> None:
    if pay.call("refund", REFUND).status == 400:
        keyed(pay)


def with_a_long_key(pay: Provider) -> None:
    if pay.call("refund", REFUND, key="order_1" * 50).status == 400:
        settled(pay.call("refund", REFUND))


def with_the_key_in_a_header(pay: Provider) -> None:
    with pay.router, httpx.Client(verify=False, base_url=pay.base_url) as client:
        client.post("/refunds", json=REFUND, headers={"idempotency-key": "order_1"}).raise_for_status()


def with_the_key_inside(pay: Provider) -> None:
    with pay.router, httpx.Client(verify=False, base_url=pay.base_url) as client:
        client.post("/refunds", json={**REFUND, "idempotency_key": "order_1"}).raise_for_status()


def noting_the_id(pay: Provider) -> None:
    if "id" not in pay.call("refund", REFUND, key="order_1").raise_for_status().body:
        raise TryAgain


def asking_again_until_it_is_done(pay: Provider) -> None:
    for _ in range(3):
        ended = pay.call("refund", REFUND, key="order_1").body["status"]
        if ended == "failed":
            raise Failed
        if ended == "done":
            return
        time.sleep(1)


def corrected_after_a_refusal(pay: Provider) -> None:
    headers = {"idempotency-key": "order_1"}
    with pay.router, httpx.Client(verify=False, base_url=pay.base_url) as client:
        if client.post("/refunds", json={"client_ref": "order_1"}, headers=headers).status_code == 400:
            corrected = client.post("/refunds", json=REFUND, headers=headers)
            if corrected.status_code == 422:
                client.post("/refunds", json=REFUND).raise_for_status()


def looked_up_after_a_while(pay: Provider) -> None:
    if pay.find("order_1").status == 404:
        time.sleep(120)
        if pay.find("order_1").status == 404:
            settled(pay.call("refund", REFUND))


def body_of(act: Callable[[Provider], None], contract: Contract) -> Callable[[Once], None]:
    """Refund once, and note it in a table that survives."""

    def body(once: Once) -> None:
        pay = once.provider("pay", contract=contract)
        with closing(sqlite3.connect(once.path / "agent.db")) as database:
            database.execute("CREATE TABLE IF NOT EXISTS done(reference)")
            database.commit()
            if database.execute("SELECT 1 FROM done").fetchone() is None:
                act(pay)
                database.execute("INSERT INTO done VALUES ('order_1')")
                database.commit()

    return body


def fenced(once: Once, contract: Contract) -> None:
    """Each attempt has a higher token than those before it; a name that is taken means that it is done."""
    pay = once.provider("pay", contract=contract)
    with closing(sqlite3.connect(once.path / "agent.db", isolation_level=None)) as database:
        database.execute("CREATE TABLE IF NOT EXISTS tokens(token INTEGER PRIMARY KEY)")
        database.execute("CREATE TABLE IF NOT EXISTS done(reference)")
        while database.execute("SELECT 1 FROM done").fetchone() is None:
            token = database.execute("INSERT INTO tokens VALUES (NULL) RETURNING token").fetchone()[0]
            try:
                settled(pay.call("refund", {**REFUND, "token": token}), 409)
            except TimeoutError:
                continue
            database.execute("INSERT INTO done VALUES ('order_1')")


DAY: dict[str, Any] = {"restart_after": ("0s", "25h")}
MINUTE: dict[str, Any] = {"restart_after": ("61s",)}
SOFT: dict[str, Any] = {"soft_faults": 1}
HONEST: dict[str, Any] = {"definite_failure": (Failed,)}
ONE, TWO, NOT, STUCK = Verdict.EXACTLY_ONCE, Verdict.DUPLICATE, Verdict.OMISSION, Verdict.STUCK


@pytest.mark.parametrize(
    ("act", "contract", "how", "verdict"),
    [
        # dedup
        (keyed, CLIENT_KEY, DAY, ONE),
        (keyed, NONE, {}, TWO),
        (refusal_means_done, BY_ORDER, DAY, ONE),
        (refusal_means_done, WINDOW, MINUTE, TWO),
        (created_if_absent, VERSIONED, DAY, ONE),
        (created_if_absent, CLIENT_KEY, {}, TWO),
        (numbered_in_one_session, SESSIONS, DAY, ONE),
        (numbered_in_one_session, CLIENT_KEY, {}, TWO),
        (numbered_in_a_new_session, SESSIONS, {}, TWO),
        (numbered_in_a_new_session, CLIENT_KEY, {}, ONE),
        # scope, key_field, max_key_length, on_missing_key
        (tried_at_another_endpoint, CLIENT_KEY, {**SOFT, "faults": ("lost-response",)}, ONE),
        (tried_at_another_endpoint, BY_ENDPOINT, {**SOFT, "faults": ("lost-response",)}, TWO),
        (in_a_new_session, CLIENT_KEY, {}, ONE),
        (in_a_new_session, BY_SESSION, {}, TWO),
        (with_the_key_in_a_header, CLIENT_KEY, {}, ONE),
        (with_the_key_in_a_header, KEY_INSIDE, {}, TWO),
        (with_the_key_inside, KEY_INSIDE, {}, ONE),
        (with_a_long_key, LONG_KEYS, {}, ONE),
        (with_a_long_key, CLIENT_KEY, {}, TWO),
        (without_a_key_unless_it_must, STRICT, {}, ONE),
        (without_a_key_unless_it_must, CLIENT_KEY, {}, TWO),
        # fingerprint_fields, on_mismatch
        (stamped, OF_AMOUNT, {}, ONE),
        (stamped, CLIENT_KEY, {}, STUCK),
        (stamped, REPLAYS, {}, ONE),
        (stamped, EXECUTES, {}, TWO),
        (stamped_and_refusal_means_done, CLIENT_KEY, {}, ONE),
        (stamped_and_refusal_means_done, OPEN, {}, TWO),
        # record_point, replay_body, acceptance
        (corrected_after_a_refusal, DROPS_INVALID, {}, ONE),
        (corrected_after_a_refusal, KEEPS_INVALID, {}, TWO),
        (noting_the_id, CLIENT_KEY, {}, ONE),
        (noting_the_id, BARE, {}, STUCK),
        (keyed, ACCEPTS, {}, NOT),
        (asking_again_until_it_is_done, ACCEPTS_AND_SHOWS, HONEST, ONE),
        (asking_again_until_it_is_done, ACCEPTS, HONEST, NOT),
        # retention, atomicity
        (keyed, CLIENT_KEY_24H, DAY, TWO),
        (keyed, AT_LEAST_45_DAYS, DAY, ONE),
        (keyed, AT_LEAST_AN_HOUR, DAY, TWO),
        (keyed, NOBODY_KNOWS, {}, Verdict.INCONCLUSIVE),
        (keyed, NOBODY_KNOWS, DAY, TWO),
        (keyed, Contract(name="effect_first", atomicity="effect_first"), {}, TWO),
        (keyed, Contract(name="record_first", atomicity="record_first"), {}, NOT),
        # lookup, visibility_lag_s, request_lifetime_s
        (looked_up, SEEN_AT_ONCE, {}, ONE),
        (looked_up, SEEN_LATER, {}, TWO),
        (looked_up, SEEN_LATER, MINUTE, ONE),
        (looked_up, SEEN_AT_ONCE, {**SOFT, "faults": ("stale-read",)}, TWO),
        (searched_in_the_list, LISTED, {}, ONE),
        (asked_over_http, SEEN_AT_ONCE, {}, ONE),
        (asked_over_http, LISTED, {}, TWO),
        (looked_up_after_a_while, SEEN_BRIEFLY_HELD, {**SOFT, "faults": ("late",)}, ONE),
        (looked_up_after_a_while, SEEN_AT_ONCE, {**SOFT, "faults": ("late",)}, TWO),
    ],
    ids=lambda value: getattr(value, "name", getattr(value, "__name__", None)),
)
def test_a_promise_decides_the_verdict(
    act: Callable[[Provider], None], contract: Contract, how: dict[str, Any], verdict: Verdict
) -> None:
    """A fake that keeps more than its contract's promise would let wrong code pass, here on what it really does."""
    report = explore(body_of(act, contract), **{"soft_faults": 0, **how})
    assert not report.problem or (verdict is Verdict.INCONCLUSIVE and "Say which delays" in report.problem)
    assert report.verdict is verdict, told(report)


@pytest.mark.parametrize(("contract", "wrong"), [(FREED, True), (FENCED, False)])
def test_a_fence_keeps_out_what_comes_after_its_name_is_free_again(contract: Contract, wrong: bool) -> None:
    """The old attempt arrives a day later; only a token that the provider compares shows that it is old.

    One schedule, replayed: tokens that grow with each attempt keep a search open.
    """

    def body(once: Once) -> None:
        fenced(once, contract)

    known: list[Boundary] = []
    explore(body, limits={"max_states": 1}, listener=lambda e: known.extend(getattr(e, "boundaries", ())))
    call = next(boundary for boundary in known if boundary.kind == "call")
    report = replay(body, f"la@{mark_of(call)}/w90000+d1", key="order_1")
    assert not report.problem, report.problem
    assert [violation.verdict for violation in report.violations] == ([Verdict.DUPLICATE] if wrong else [])
