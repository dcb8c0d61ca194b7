"""What a contract makes of a request, parameter by parameter, without anybody who explores."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from once_fakes import CLIENT_KEY, NONE, Contract, Provider, Reply
from once_fakes.arriving import arrive
from once_fakes.dialect import Act, Request, dialect_of
from once_fakes.held import deliver, ways
from once_fakes.instructions import Instructions
from once_fakes.reply import Refusal
from once_fakes.wire import handle_http
from pytest_once.clock import EPOCH_S
from pytest_once.faults import ARRIVES
from pytest_once.ledger import IN_PROGRESS, Ledger

SESSION = Contract(name="session", dedup="session_sequence", session_field="s", sequence_field="n")
VERSION = Contract(name="version", dedup="conditional", version_field="version")
FENCE = replace(CLIENT_KEY, name="fence", fencing="token", fence_field="token")
WORKS = replace(CLIENT_KEY, name="works", on_concurrent="coalesce")
ACCEPTS = replace(CLIENT_KEY, name="accepts", acceptance="async202", lookup="by_key")


class Asking:
    """A provider of that contract, asked directly."""

    def __init__(self, ledger: Ledger, contract: Contract) -> None:
        self.ledger = ledger
        self.contract = contract
        Provider("pay", contract, ledger, str)

    def act(self, payload: Any, key: str | None = None, operation: str = "refund", **how: Any) -> Reply:
        instructions = Instructions(**{name: how.pop(name) for name in ("begin", "fail", "decline") if name in how})
        return arrive(self.ledger, "pay", Act(operation, payload, key, **how), instructions)

    def later(self, seconds: float) -> None:
        self.ledger.set_now(self.ledger.now_s() + seconds)

    @property
    def states(self) -> list[str]:
        return [effect.state for effect in self.ledger.begun()]

    def ways(self, number: int = 1) -> tuple[str, ...]:
        with self.ledger.transaction() as connection:
            return ways(connection, number)


# A producer's session (Kafka), a version (HTTP preconditions), a fencing token.


def test_a_session_drops_what_is_not_new_and_refuses_a_gap(ledger: Ledger) -> None:
    """S12 of the incidents: a restarted producer is a new session, and nothing protects it."""
    pay = Asking(ledger, SESSION)

    def sent(session: str, number: object) -> tuple[int, str]:
        reply = pay.act({"s": session, "n": number})
        return reply.status, reply.outcome

    assert sent("a", 0) == (200, "executed")
    assert sent("a", 0) == (200, "replayed")
    assert sent("a", 1) == (200, "executed")
    assert sent("a", 0) == (200, "replayed")
    assert sent("a", 3) == (409, "refused")
    assert sent("b", 7) == (200, "executed")
    assert sent("a", "x") == (400, "refused")
    assert pay.act({"s": "a", "n": 0}).body == {"object": "acknowledgement", "accepted": True}
    assert len(pay.states) == 3
    assert ("positions", ("pay", "session a", 1)) in ledger.state_rows()


def test_a_request_is_for_one_version_of_its_object(ledger: Ledger) -> None:
    """The second of two equal updates meets its own success."""
    pay = Asking(ledger, VERSION)
    put = "PUT /things/1"
    assert pay.act({"version": "0"}, operation=put).status == 200
    assert pay.act({"version": "0"}, operation=put).status == 409
    assert pay.act({"version": "1"}, operation=put).status == 200
    assert pay.act({"version": "1"}, operation="PUT /things/2").status == 409
    assert pay.act({}, operation=put, precondition="2").status == 200
    assert pay.act({}, operation="PUT /things/3", precondition="").status == 200
    assert pay.act({}, operation="PUT /things/3", precondition="").body["error"]["type"] == "precondition_failed"
    assert pay.act({}, operation=put).status == 200  # asks for no version


@pytest.mark.parametrize(
    ("headers", "status"), [({"if-none-match": "*"}, 409), ({"if-match": 'W/"1"'}, 200), ({"if-match": '"7"'}, 409)]
)
def test_preconditions_come_in_the_usual_headers(ledger: Ledger, headers: dict[str, str], status: int) -> None:
    """RFC 9110, section 13."""
    pay = Asking(ledger, VERSION)
    pay.act({}, operation="PUT /things/1", precondition="")
    assert handle_http(ledger, "pay", VERSION, "PUT", "/things/1", headers, b"").status == status


def test_a_fence_remembers_the_highest_token_whatever_became_of_its_request(ledger: Ledger) -> None:
    """A repetition and a refusal show as well that somebody newer is there."""
    pay = Asking(ledger, FENCE)
    assert pay.act({"token": 1, "a": 1}, "k").status == 200
    assert pay.act({"token": 3, "a": 2}, "k").status == 422
    stale = pay.act({"token": 2, "a": 3}, "l")
    assert (stale.status, stale.body["error"]["type"]) == (409, "fenced")
    assert pay.act({"token": 3, "a": 3}, "l").status == 200
    assert pay.act({"token": "x"}, "m").status == 400
    assert pay.act({}, "m").status == 400
    assert [arrival.relied for arrival in ledger.arrivals()][2] == "fencing"


# Keys.


@pytest.mark.parametrize(
    ("scope", "same", "other"),
    [
        ("account", {"account": "a"}, {"account": "b"}),
        ("region", {"region": "eu"}, {"region": "us"}),
        ("session", {"session": "1"}, {"session": "2"}),
        ("endpoint", {"operation": "refund"}, {"operation": "charge"}),
    ],
)
def test_a_key_is_unique_within_its_scope(ledger: Ledger, scope: Any, same: Any, other: Any) -> None:
    """The same key of another tenant is another key."""
    pay = Asking(ledger, replace(CLIENT_KEY, scope=(scope,)))
    assert [pay.act(1, "k", **how).outcome for how in (same, same, other)] == ["executed", "replayed", "executed"]
    assert [arrival.scope for arrival in ledger.arrivals()][::2] == [
        next(iter(same.values())),
        next(iter(other.values())),
    ]


def test_two_accounts_are_told_apart_without_their_credentials(ledger: Ledger) -> None:
    """What is stored is a digest; a held request keeps who sent it."""
    contract = replace(CLIENT_KEY, scope=("account",))
    Provider("pay", contract, ledger, str)
    outcomes = []
    for token in ("one", "one", "two"):
        headers = {"authorization": f"Bearer {token}", "idempotency-key": "k"}
        outcomes.append(handle_http(ledger, "pay", contract, "POST", "/r", headers, b"").outcome)
    assert outcomes == ["executed", "replayed", "executed"]
    headers = {"authorization": "Bearer one", "idempotency-key": "k"}
    ledger.hold("pay", "POST /r", {"method": "POST", "path": "/r", "headers": headers, "body": b""})
    arrived = deliver(ledger, 1)
    assert arrived is not None and arrived.outcome == "replayed"
    assert b"Bearer" not in ledger.path.read_bytes()


def test_only_the_named_fields_are_compared(ledger: Ledger) -> None:
    """What a provider does not look at cannot be a mismatch."""
    pay = Asking(ledger, replace(CLIENT_KEY, fingerprint_fields=("amount", "to.name")))
    pay.act({"amount": 1, "to": {"name": "n", "note": "a"}}, "k")
    assert pay.act({"amount": 1, "to": {"name": "n", "note": "b"}}, "k").outcome == "replayed"
    assert pay.act({"amount": 1, "to": {"name": "m", "note": "a"}}, "k").status == 422
    assert pay.act({"amount": 1, "to": {"name": "n"}}, "k", operation="charge").status == 422


@pytest.mark.parametrize(("key", "kind"), [("k" * 6, "idempotency_key_too_long"), ("ké", "idempotency_key_unusable")])
def test_a_key_that_cannot_be_used_is_refused(ledger: Ledger, key: str, kind: str) -> None:
    """Truncating it would make two keys one."""
    pay = Asking(ledger, replace(CLIENT_KEY, max_key_length=5))
    reply = pay.act(1, key)
    assert (reply.status, reply.body["error"]["type"]) == (400, kind)
    assert pay.act(1, "k" * 5).status == 200


def test_a_key_in_the_payload_is_not_looked_for_in_a_header(ledger: Ledger) -> None:
    """A provider that reads its body only does not know the header."""
    contract = replace(CLIENT_KEY, key_field="meta.key")
    pay = Asking(ledger, contract)
    body = json.dumps({"meta": {"key": "k"}}).encode()
    headers = {"content-type": "application/json"}
    assert [handle_http(ledger, "pay", contract, "POST", "/r", headers, body).outcome for _ in range(2)] == [
        "executed",
        "replayed",
    ]
    keyed = {"idempotency-key": "k"}
    assert [handle_http(ledger, "pay", contract, "POST", "/r", keyed, b"").outcome for _ in range(2)] == [
        "executed"
    ] * 2
    assert pay.act({"meta": {"key": "k2"}}).outcome == "executed"


# Stored outcomes.


@pytest.mark.parametrize(
    ("stored", "declined", "failed"),
    [
        ("success", "executed", "executed"),
        ("success_and_4xx", "replayed", "executed"),
        ("all", "replayed", "replayed"),
    ],
)
def test_a_receipt_keeps_the_outcomes_that_the_contract_names(
    ledger: Ledger, stored: Any, declined: str, failed: str
) -> None:
    """Stripe keeps a 500 too, and repeats it for ever."""
    pay = Asking(ledger, replace(CLIENT_KEY, stored_outcomes=stored))
    assert (pay.act(1, "d", decline=True).status, pay.act(1, "f", fail=True).status) == (402, 500)
    assert (pay.act(1, "d").outcome, pay.act(1, "f").outcome) == (declined, failed)


def test_a_repeated_failure_may_be_tried_anew(ledger: Ledger) -> None:
    """Stripe's second version does, for failures."""
    pay = Asking(ledger, replace(CLIENT_KEY, stored_outcomes="all", on_retry_after_failure="re_execute"))
    assert [pay.act(1, "k", fail=fail).outcome for fail in (True, True, False, False)] == [
        "failed",
        "failed",
        "executed",
        "replayed",
    ]


@pytest.mark.parametrize(("point", "again"), [("validated", "executed"), ("arrival", "replayed")])
def test_an_invalid_request_takes_its_key_on_arrival_or_not_at_all(ledger: Ledger, point: Any, again: str) -> None:
    """Whoever corrects the request needs another key, or the same one."""
    pay = Asking(ledger, replace(CLIENT_KEY, record_point=point, stored_outcomes="success_and_4xx"))
    invalid = Refusal("invalid", 400, "amount is missing", "amount")
    assert pay.act(1, "k", invalid=invalid).status == 400
    assert pay.act(1, "k").outcome == again


# What a repetition is answered.


@pytest.mark.parametrize(
    ("replay_body", "status", "body"),
    [
        ("original", 202, {"status": "pending"}),
        ("current_state", 200, {"status": "done"}),
        ("ack_only", 200, {"accepted": True}),
    ],
)
def test_a_repetition_is_answered_as_the_contract_says(
    ledger: Ledger, replay_body: Any, status: int, body: dict[str, object]
) -> None:
    """The first answer, the state of today, or nothing but "yes"."""
    pay = Asking(ledger, replace(ACCEPTS, replay_body=replay_body))
    assert pay.act(1, "k").status == 202
    pay.later(2)
    reply = pay.act(1, "k")
    assert reply.status == status
    assert body.items() <= reply.body.items()
    assert reply.headers["idempotent-replayed"] == "true"


# Work that is accepted, or begun.


def test_accepted_work_is_done_when_it_is_due(ledger: Ledger) -> None:
    """Whoever asks sees it pending until then."""
    pay = Asking(ledger, ACCEPTS)
    shop = Provider("pay", ACCEPTS, ledger, str)
    assert pay.act(1, "k").body["status"] == "pending"
    assert (shop.find("k").body["status"], pay.states) == ("pending", ["pending"])
    pay.later(2)
    assert (shop.find("k").body["status"], pay.states) == ("done", ["done"])
    assert ledger.in_flight() == []


def test_accepted_work_is_done_or_fails_at_any_time(ledger: Ledger) -> None:
    """Two ways, in words; a failed effect does not count, and keeps its number."""
    pay = Asking(ledger, ACCEPTS)
    for key in ("k", "l"):
        pay.act(1, key)
    assert pay.ways(2) == ("the accepted work is done", "the accepted work fails")
    assert deliver(ledger, 2, 1) is None and deliver(ledger, 1) is None
    assert pay.states == ["done", "failed"]
    assert len(ledger.effects()) == 1
    assert pay.act(1, "m").body["id"] == "pay_3"
    with pytest.raises(LookupError, match="has no way 2"):
        deliver(ledger, 1, 2)


@pytest.mark.parametrize(
    ("concurrent", "status", "states"),
    [("reject", 409, ["pending"]), ("coalesce", 200, ["done"]), ("race", 200, ["pending", "done"])],
)
def test_a_repetition_meets_work_that_is_still_going_on(
    ledger: Ledger, concurrent: Any, status: int, states: list[str]
) -> None:
    """Refused, joined, or done as well."""
    pay = Asking(ledger, replace(WORKS, on_concurrent=concurrent))
    assert pay.act(1, "k", begin=True).outcome == "begun"
    assert ledger.receipts()[0].status == IN_PROGRESS
    assert (pay.act(1, "k").status, pay.states) == (status, states)
    pay.later(2)
    assert pay.act(1, "k").outcome == "replayed"


def test_work_that_dies_with_its_worker_leaves_no_trace(ledger: Ledger) -> None:
    """Nobody was told its number, so the next effect has it; one that others came after keeps its place."""
    pay = Asking(ledger, WORKS)
    pay.act(1, "k", begin=True)
    assert pay.ways() == (
        "the provider's work on an earlier request is done",
        "the provider's work on an earlier request fails",
    )
    deliver(ledger, 1, 1)
    assert (pay.states, ledger.receipts(), ledger.in_flight()) == ([], [], [])
    pay.act(1, "k", begin=True)
    assert pay.act(1, "l").body["id"] == "pay_2"
    deliver(ledger, 1, 1)
    assert pay.states == ["failed", "done"]
    assert pay.act(1, "k").body["id"] == "pay_3"


@pytest.mark.parametrize("begin", [True, False])
def test_a_key_may_be_taken_only_when_the_work_is_done(ledger: Ledger, begin: bool) -> None:
    """Until then a repetition finds nothing; afterwards it is recognised, by the first that was done."""
    contract = replace(ACCEPTS, record_point="completed", on_concurrent="race", retention_s=60)
    pay = Asking(ledger, contract)
    pay.act(1, "k", begin=begin)
    assert ledger.receipts() == []
    assert pay.act(1, "k").outcome == "accepted"
    deliver(ledger, 2)
    (receipt,) = ledger.receipts()
    assert (receipt.key, receipt.effect, receipt.expires_s) == ("k", 2, EPOCH_S + 60)
    deliver(ledger, 1)
    assert ledger.receipts() == [receipt]
    assert pay.act(1, "k").body["id"] == "pay_2"
    assert pay.act(2, "k").status == 422


# Requests on their way.


def test_a_request_arrives_within_its_lifetime_or_never(ledger: Ledger) -> None:
    """S3.5: after it, "not found" is evidence at last."""
    pay = Asking(ledger, replace(NONE, request_lifetime_s=60))
    for _ in range(2):
        ledger.hold("pay", "refund", {"payload": "1", "key": None})
    assert pay.ways() == (ARRIVES,)
    pay.later(59)
    assert deliver(ledger, 1) is not None
    pay.later(1)
    assert pay.ways() == ("a request that was still on its way has waited for too long, and is dropped",)
    assert deliver(ledger, 1) is None
    assert (len(ledger.arrivals()), ledger.in_flight()) == (1, [])


# Dialects and promises.


@pytest.mark.parametrize(
    "contract",
    [
        CLIENT_KEY,
        SESSION,
        VERSION,
        FENCE,
        ACCEPTS,
        replace(CLIENT_KEY, key_field="key"),
        Contract(name="n", dedup="natural_key", natural_key_field="order"),
        Contract(name="w", dedup="content_window", window_s=30),
    ],
    ids=lambda contract: contract.name,
)
def test_the_example_of_a_dialect_is_recognised_when_it_is_repeated(ledger: Ledger, contract: Contract) -> None:
    """Tests for all presets are written with it."""
    Provider("pay", contract, ledger, str)
    dialect = dialect_of(contract)

    def sent(request: Request) -> Reply:
        path = request.path + (f"?{request.query}" if request.query else "")
        return handle_http(ledger, "pay", contract, request.method, path, request.headers, request.body)

    assert sent(dialect.example(contract, "order_1")).status in (200, 202)
    sent(dialect.example(contract, "order_1"))
    assert len(ledger.begun()) == 1
    assert sent(dialect.example(contract, None, 1)).status < 500


def test_a_dialect_that_is_not_there_is_said_with_what_to_write(ledger: Ledger) -> None:
    """A slip in a preset's name."""
    for name in ("once_fakes.nowhere:X", "once_fakes.dialect:NOTHING", "once_fakes.dialect:Act"):
        with pytest.raises(ValueError, match=r"once_fakes\.dialect\.Dialect"):
            dialect_of(replace(CLIENT_KEY, dialect=name))


@pytest.mark.parametrize(
    ("contract", "said"),
    [
        (replace(CLIENT_KEY, retention_s=(86400, None)), "live 24 h at least and may then be forgotten at any time"),
        (replace(CLIENT_KEY, retention_s=(3600, 7200)), "live 1 h at least and 2 h at most"),
        (replace(CLIENT_KEY, retention_s="unspecified"), "a time that is not documented: 1 h are taken for granted"),
        (replace(CLIENT_KEY, on_mismatch="unspecified"), "is not documented: refused, replayed and done were tried"),
        (replace(WORKS, on_concurrent="reject"), "while the first is still worked on is refused with 409"),
        (replace(WORKS, on_concurrent="unspecified"), "is not documented: refused, waiting and acting were tried"),
        (
            replace(CLIENT_KEY, stored_outcomes="all"),
            "server errors too; a repetition of a failure is answered with it",
        ),
        (replace(CLIENT_KEY, record_point="arrival"), "a key is taken on arrival, even by an invalid request"),
        (replace(CLIENT_KEY, replay_body="ack_only"), "acknowledged without saying what it repeated"),
        (ACCEPTS, "202 means accepted: the effect is done within 2 s, or fails"),
        (replace(CLIENT_KEY, webhooks="at_least_once"), "at least once, in any order, perhaps before the response"),
        (replace(CLIENT_KEY, request_lifetime_s=60), "held up for more than 60 s is dropped"),
        (FENCE, "a token lower than one seen before is refused with 409"),
        (replace(CLIENT_KEY, scope=("account", "endpoint")), "compared within one account and endpoint"),
        (SESSION, "a n that is not new is acknowledged and dropped"),
        (VERSION, "a request is for one version of its object (version, If-Match, If-None-Match)"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_every_parameter_has_its_sentence(contract: Contract, said: str) -> None:
    """A verdict without its premises says nothing."""
    assert said in "\n".join(contract.assumptions())
