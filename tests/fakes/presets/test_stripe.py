"""Stripe v1 and v2: what each does with a key, over the wire and through the official SDK."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from once_fakes import Provider, contracts
from once_fakes.server import LoopbackServer
from pytest_once import Once, Verdict, explore
from pytest_once.boundaries import forget_endpoints
from pytest_once.clock import EPOCH_S
from pytest_once.ledger import Ledger
from tests.engine.bodies import put, state, tasks, told
from tests.fakes.presets.requests_of import Wire, form

AUTH = {"authorization": "Bearer sk_test_1"}
REFUND: dict[str, Any] = {"charge": "ch_1", "amount": 500}
DAY_S = 86400.0


class Stripe(Wire):
    """Wire with Stripe's form bodies."""

    def post(self, path: str, key: str | None = None, auth: str = "Bearer sk_test_1", **fields: Any) -> Any:
        headers = {"authorization": auth} | ({} if key is None else {"idempotency-key": key})
        return self.send("POST", path, form(**fields), headers)


@pytest.fixture
def stripe(ledger: Ledger) -> Stripe:
    return Stripe(ledger, contracts.stripe_v1)


def test_a_refund_is_replayed_with_its_status_and_body(stripe: Stripe) -> None:
    """The heart of v1: the same bytes, and a header that says so."""
    first = stripe.post("/v1/refunds", "k", **REFUND, **{"metadata[order]": "o_1", "expand[]": "charge"})
    again = stripe.post("/v1/refunds", "k", **REFUND, **{"metadata[order]": "o_1", "expand[]": "charge"})
    assert (first.status, first.headers.get("idempotent-replayed")) == (200, None)
    assert first.body["id"] == "re_once00000000000000000001"
    assert first.body["amount"] == 500
    assert first.body["metadata"] == {"order": "o_1"}
    assert (again.content, again.headers["idempotent-replayed"]) == (first.content, "true")
    assert stripe.outcomes == ["executed", "replayed"]


@pytest.mark.parametrize(
    ("path", "fields"), [("/v1/refunds", REFUND | {"amount": 600}), ("/v1/charges", {"amount": 500, "currency": "usd"})]
)
def test_a_key_is_for_one_endpoint_and_its_parameters(stripe: Stripe, path: str, fields: dict[str, Any]) -> None:
    """Replaying the first answer to another request would hide that nothing was done."""
    stripe.post("/v1/refunds", "k", **REFUND)
    other = stripe.post(path, "k", **fields)
    assert (other.status, other.body["error"]["type"]) == (400, "idempotency_error")
    assert stripe.effects == 1


def test_a_server_error_is_replayed(stripe: Stripe) -> None:
    """Whoever repeats a 500 under its key for ever hears the 500 for ever, although nothing was done."""
    first = stripe.send("POST", "/v1/refunds", form(**REFUND), AUTH | {"idempotency-key": "k"}, once_order="fail")
    again = stripe.post("/v1/refunds", "k", **REFUND)
    assert (first.status, again.status, again.content) == (500, 500, first.content)
    assert again.headers["idempotent-replayed"] == "true"
    assert stripe.post("/v1/refunds", "k2", **REFUND).status == 200


def test_a_request_at_the_same_time_is_refused(stripe: Stripe) -> None:
    """In use means that the first one is under way, not that it has failed."""
    headers = AUTH | {"idempotency-key": "k"}
    stripe.send("POST", "/v1/refunds", form(**REFUND), headers, once_order="begin")
    second = stripe.post("/v1/refunds", "k", **REFUND)
    assert (second.status, second.body["error"]["code"]) == (409, "idempotency_key_in_use")


def test_what_fails_validation_takes_no_key(stripe: Stripe) -> None:
    """The corrected request may go under the same key."""
    for wrong, code in (
        ({"amount": 500}, "parameter_missing"),
        (REFUND | {"amount": 0}, None),
        (REFUND | {"amount": "5.00"}, None),
        (REFUND | {"reason": "whim"}, None),
        (REFUND | {"order": "o_1"}, "parameter_unknown"),
    ):
        reply = stripe.post("/v1/refunds", "k", **wrong)
        assert (reply.status, reply.body["error"]["type"]) == (400, "invalid_request_error")
        assert reply.body["error"].get("code") == code
    assert stripe.post("/v1/refunds", "k", auth="", **REFUND).status == 401
    assert stripe.post("/v1/refunds", "k", **REFUND).status == 200


def test_a_declined_card_is_replayed(stripe: Stripe) -> None:
    """A decline is an outcome of the work: paying with another card needs another key."""
    declined: dict[str, Any] = {"amount": 500, "currency": "usd", "source": "tok_chargeDeclined"}
    replies = [stripe.post("/v1/charges", "k", **declined) for _ in range(2)]
    assert [reply.status for reply in replies] == [402, 402]
    assert replies[1].headers["idempotent-replayed"] == "true"
    error = replies[1].body["error"]
    assert (error["type"], error["code"], error["decline_code"]) == ("card_error", "card_declined", "generic_decline")
    assert stripe.effects == 0


def test_keys_belong_to_the_account(stripe: Stripe) -> None:
    """Another API key is another account, and so is a connected account."""
    stripe.post("/v1/refunds", "k", **REFUND)
    assert stripe.post("/v1/refunds", "k", auth="Bearer sk_test_2", **REFUND).outcome == "executed"
    connected = AUTH | {"idempotency-key": "k", "stripe-account": "acct_2"}
    assert stripe.send("POST", "/v1/refunds", form(**REFUND), connected).outcome == "executed"


def test_a_day_is_a_floor(stripe: Stripe) -> None:
    """Before 24 hours a key is known; after that it may be known or forgotten, and both are explored."""
    stripe.post("/v1/refunds", "k", **REFUND)
    stripe.ledger.set_now(EPOCH_S + DAY_S - 1)
    assert stripe.post("/v1/refunds", "k", **REFUND).outcome == "replayed"
    stripe.ledger.set_now(EPOCH_S + 2 * DAY_S)
    headers = AUTH | {"idempotency-key": "k"}
    assert stripe.send("POST", "/v1/refunds", form(**REFUND), headers, once_order="asks").status == 300
    later = stripe.send("POST", "/v1/refunds", form(**REFUND), headers, once_order="retention=forgotten")
    assert later.outcome == "executed"


def test_a_charge_is_refunded_up_to_its_amount(stripe: Stripe) -> None:
    """A second refund in full fails by itself, whatever its key; a second partial one does not."""
    charge = stripe.post("/v1/charges", amount=1000, currency="usd", source="tok_visa").body["id"]
    assert stripe.post("/v1/refunds", charge=charge, amount=600).status == 200
    assert stripe.post("/v1/refunds", charge=charge, amount=600).status == 400
    assert stripe.post("/v1/refunds", charge=charge).status == 200
    for key, fields in (("k", {"charge": charge}), ("l", {"charge": charge, "amount": 1})):
        refused = stripe.post("/v1/refunds", key, **fields)
        assert (refused.status, refused.body["error"]["code"]) == (400, "charge_already_refunded")
    assert stripe.effects == 3


def test_lists_searches_and_single_objects(stripe: Stripe) -> None:
    """Refunds can be listed by their charge; charges can be searched by metadata; only ids name one object."""
    stripe.post("/v1/refunds", **REFUND, **{"metadata[order]": "o_1"})
    stripe.post("/v1/refunds", charge="ch_2")
    stripe.post("/v1/charges", amount=5, currency="usd", source="tok_visa", **{"metadata[order]": "o_1"})

    def get(path: str) -> Any:
        return stripe.send("GET", path, headers=AUTH)

    assert [one["charge"] for one in get("/v1/refunds").body["data"]] == ["ch_2", "ch_1"]
    assert [one["charge"] for one in get("/v1/refunds?charge=ch_1&limit=3").body["data"]] == ["ch_1"]
    found = get("/v1/charges/search?query=metadata%5B'order'%5D:'o_1'").body
    assert [one["id"] for one in found["data"]] == ["ch_once00000000000000000003"]
    assert get("/v1/charges/search?query=metadata%5B'order'%5D:'o_2'").body["data"] == []
    assert get("/v1/charges/search?query=nonsense").status == 400
    assert get("/v1/refunds/re_once00000000000000000001").body["amount"] == 500
    missing = get("/v1/refunds/o_1")
    assert (missing.status, missing.body["error"]["code"]) == (404, "resource_missing")


@pytest.mark.parametrize("name", ["a[", "[a]", "metadata[a][", "a]b", "x" + "[y]" * 9, "amount[x]"])
def test_odd_names_of_parameters_are_refused(stripe: Stripe, name: str) -> None:
    """Brackets are a small language, and clients get it wrong."""
    assert stripe.post("/v1/refunds", **REFUND, **{name: "1"}).status == 400
    assert stripe.effects == 0


def test_v2_tries_a_failure_anew_and_v1_does_not(ledger: Ledger) -> None:
    """The two versions of one provider differ in what a retry after a 500 means."""
    wire = Wire(ledger, contracts.stripe_v2)
    assert wire.example("k", once_order="fail").status == 500
    done = wire.example("k")
    again = wire.example("k")
    assert [done.outcome, again.outcome] == ["executed", "replayed"]
    assert done.body["id"] == again.body["id"] == "obp_once00000000000000000001"
    assert wire.example("k", 1, once_order="asks").status == 300  # what a mismatch gets is not documented
    listed = wire.again(wire.dialect.example_lookup(wire.contract, None))
    assert [one["id"] for one in listed.body["data"]] == [done.body["id"]]


# Through clients, on a real socket.


@pytest.fixture(scope="module")
def server() -> Iterator[LoopbackServer]:
    server = LoopbackServer()
    server.start()
    yield server
    server.close()


@pytest.fixture
def official(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Makes clients of the official SDK, whose connections are closed afterwards."""
    stripe = pytest.importorskip("stripe")

    def make(url: str, retries: int, transport: Any = None) -> Any:
        transport = transport or stripe.RequestsClient()
        request.addfinalizer(transport.close)
        base = {"api": url}
        return stripe.StripeClient("sk_test_1", base_addresses=base, max_network_retries=retries, http_client=transport)

    return make


@pytest.fixture
def url(server: LoopbackServer, ledger: Ledger) -> Iterator[str]:
    provider = Provider("stripe", contracts.stripe_v1, ledger, lambda: server.address("token", ledger.path))
    yield provider.url
    server.forget("token")
    forget_endpoints()


def test_the_official_sdk_works_unmodified(url: str, ledger: Ledger, official: Callable[..., Any]) -> None:
    """Its objects, its exceptions, its parsing of errors."""
    stripe = pytest.importorskip("stripe")
    client = official(url, retries=0)
    charge = client.v1.charges.create({"amount": 2000, "currency": "usd", "source": "tok_visa"})
    given = {"charge": charge.id, "amount": 500, "metadata": {"order": "o_1"}}
    refund = client.v1.refunds.create(given, {"idempotency_key": "k"})
    again = client.v1.refunds.create(given, {"idempotency_key": "k"})
    assert (refund.id, refund.amount, refund.status, refund.metadata["order"]) == (again.id, 500, "succeeded", "o_1")
    assert again.last_response.headers["Idempotent-Replayed"] == "true"
    with pytest.raises(stripe.IdempotencyError):
        client.v1.refunds.create(given | {"amount": 600}, {"idempotency_key": "k"})
    with pytest.raises(stripe.CardError) as declined:
        client.v1.payment_intents.create(
            {"amount": 5, "currency": "usd", "payment_method": "pm_card_chargeDeclined", "confirm": True}
        )
    assert declined.value.code == "card_declined"
    with pytest.raises(stripe.InvalidRequestError):
        client.v1.refunds.retrieve("re_unknown")
    with pytest.raises(stripe.AuthenticationError):
        stripe.StripeClient("", base_addresses={"api": url}).v1.refunds.list()
    assert [one.id for one in client.v1.refunds.list({"charge": charge.id})] == [refund.id]
    assert len(ledger.effects()) == 2


def by_requests(url: str, headers: dict[str, str]) -> int:
    requests: Any = pytest.importorskip("requests")
    return int(requests.post(f"{url}/v1/refunds", data=REFUND, headers=headers).status_code)


def by_httpx(url: str, headers: dict[str, str]) -> int:
    return httpx.post(f"{url}/v1/refunds", data=REFUND, headers=headers).status_code


def by_aiohttp(url: str, headers: dict[str, str]) -> int:
    aiohttp: Any = pytest.importorskip("aiohttp")

    async def main() -> int:
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.post(f"{url}/v1/refunds", data=REFUND) as response,
        ):
            return int(response.status)

    return asyncio.run(main())


@pytest.mark.parametrize("send", [by_requests, by_httpx, by_aiohttp])
def test_any_client_refunds_once(url: str, ledger: Ledger, send: Callable[[str, dict[str, str]], int]) -> None:
    """Each encodes a form in its own way; to the provider they are one request."""
    headers = AUTH | {"Idempotency-Key": "k"}
    assert [send(url, headers), send(url, headers), by_httpx(url, headers)] == [200, 200, 200]
    assert len(ledger.effects()) == 1


# Explored.


def refunding(looks: bool) -> Callable[[Once], None]:
    """A refund with the SDK, whose retries are hidden from the caller, and a table that says what is done."""

    def body(once: Once) -> None:
        import stripe

        pay = once.provider("stripe", contract="stripe_v1")
        with tasks(once) as db:
            if state(db) is None:
                client = stripe.StripeClient("sk_test_1", base_addresses={"api": pay.url}, max_network_retries=2)
                if not looks:
                    client.v1.refunds.create({"charge": "ch_1", "amount": 500})
                elif not client.v1.refunds.list({"charge": "ch_1"}).data:
                    client.v1.refunds.create({"charge": "ch_1", "amount": 500}, {"idempotency_key": "order_1"})
                put(db, "done")

    return body


@pytest.mark.slow
def test_the_sdks_own_key_ends_with_the_process() -> None:
    """In one life its hidden retries are one effect, after a crash another; looking and a key of one's own help."""
    pytest.importorskip("stripe")
    how: dict[str, Any] = {"faults": ("lost-response",), "redeliver": 0, "restart_after": ("0s", "3d")}
    wrong = explore(refunding(looks=False), profile="crash")
    assert wrong.verdict is Verdict.DUPLICATE, told(wrong)
    for schedule in (wrong.violations[0].schedule, *wrong.violations[0].variants):
        assert schedule.lives[0].crash is not None
    right = explore(refunding(looks=True), **how)
    assert (right.verdict, right.coverage) == (Verdict.EXACTLY_ONCE, "exhausted"), told(right)


def test_hidden_retries_are_arrivals(url: str, ledger: Ledger, official: Callable[..., Any]) -> None:
    """Each resend of the SDK reaches the provider under the key that the SDK made up for the call."""
    stripe = pytest.importorskip("stripe")

    transport = stripe.RequestsClient()
    send, lost = transport.request, iter((True, True))

    def losing(*args: Any, **more: Any) -> Any:
        answer = send(*args, **more)
        if next(lost, False):
            raise stripe.APIConnectionError("lost", should_retry=True)
        return answer

    transport.request, transport._sleep_time_seconds = losing, lambda *args: 0.0
    client = official(url, 2, transport)
    client.v1.refunds.create({"charge": "ch_1", "amount": 500})
    assert [one.outcome for one in ledger.arrivals()] == ["executed", "replayed", "replayed"]
    assert len({one.key for one in ledger.arrivals()}) == 1


def test_a_key_of_one_attempt_is_convicted() -> None:
    """The same mistake without an SDK."""

    def body(once: Once) -> None:
        pay = once.provider("stripe", contract="stripe_v1")
        headers = AUTH | {"Idempotency-Key": str(uuid.uuid4())}
        with httpx.Client(verify=False) as client:
            client.post(f"{pay.url}/v1/refunds", data=REFUND, headers=headers).raise_for_status()

    assert explore(body, profile="crash").verdict is Verdict.DUPLICATE
