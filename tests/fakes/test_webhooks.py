"""Webhooks reach a handler as a provider delivers them, and the engine chooses how (S2.4, S2.6)."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest

from once_fakes import CLIENT_KEY, Contract, Event, Provider
from once_fakes.signing import secret_key
from pytest_once import Once, Report, Verdict, explore
from pytest_once.boundaries import Announcer, Boundary, Order, connect
from pytest_once.clock import EPOCH_S
from pytest_once.ledger import Ledger
from pytest_once.reporting import terminal
from tests.engine.bodies import proven, told

TELLS = replace(CLIENT_KEY, name="tells", webhooks="at_least_once")
TELLS_LATER = replace(TELLS, name="tells_later", acceptance="async202")


def provider(ledger: Ledger, contract: Contract = TELLS) -> Provider:
    return Provider("pay", contract, ledger, str)


def choosing(*options: int) -> list[Boundary]:
    """Take these options, one for each boundary of a webhook that has several; the first one afterwards."""
    announced: list[Boundary] = []
    left = list(options)

    def ask(boundary: Boundary) -> Order:
        announced.append(boundary)
        several = boundary.kind == "webhook" and len(boundary.options) > 1
        return Order(option=left.pop(0) if several and left else 0)

    connect(Announcer(ask))
    return announced


def ids(events: Any) -> list[str]:
    return [event.id for event in events]


# One delivery, on the wire.


def test_an_event_says_what_became_of_an_effect(ledger: Ledger) -> None:
    """Its id is the same however often it is delivered: that is what a handler deduplicates by."""
    pay = provider(ledger)
    pay.call("refund", {"amount": 5}, key="k")
    seen: list[Event] = []
    assert pay.deliver_webhooks(seen.append) == ()
    (event,) = seen
    assert (event.id, event.kind) == ("evt_pay_1", "receipt.done")
    assert event.json() == {
        "id": "evt_pay_1",
        "type": "receipt.done",
        "data": pay.call("refund", {"amount": 5}, key="k").body,
    }
    assert pay.deliver_webhooks(seen.append) == ()
    assert len(seen) == 1


def test_an_event_is_signed_as_standard_webhooks_says(ledger: Ledger) -> None:
    """Handlers verify before they believe; code under test does so with its own verifier and the fakes' secret."""
    pay = provider(ledger)
    pay.call("refund", 1, key="k")
    seen: list[Event] = []
    pay.deliver_webhooks(seen.append)
    headers = seen[0].headers
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + seen[0].body
    expected = base64.b64encode(hmac.new(secret_key(), signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert headers["webhook-id"] == seen[0].id
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60
    assert headers["content-type"] == "application/json"


@pytest.mark.parametrize("answer", [300, 404, 500, RuntimeError("no database")])
def test_what_is_not_acknowledged_comes_once_more_and_then_waits(
    ledger: Ledger, answer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """At least once: a provider tries again, and never gives an event up."""
    pay = provider(ledger)
    pay.call("refund", 1, key="k")
    pay.call("refund", 1, key="l")
    seen: list[str] = []

    def handle(event: Event) -> int:
        seen.append(event.id)
        if isinstance(answer, Exception):
            raise answer
        return int(answer)

    assert ids(pay.deliver_webhooks(handle)) == ["evt_pay_1", "evt_pay_2"]
    assert seen == ["evt_pay_1", "evt_pay_2", "evt_pay_1", "evt_pay_2"]
    assert ("no database" in capsys.readouterr().err) == isinstance(answer, Exception)
    assert pay.deliver_webhooks(lambda event: 204) == ()


def test_a_handler_that_answers_nonsense_is_the_tests_error(ledger: Ledger) -> None:
    """Taking a response object for "acknowledged" would hide every failure."""
    pay = provider(ledger)
    pay.call("refund", 1, key="k")
    with pytest.raises(TypeError, match="returns None or an HTTP status such as 200"):
        pay.deliver_webhooks(lambda event: httpx.Response(500))  # type: ignore[arg-type, return-value]


def test_without_promise_or_handler_nothing_is_delivered(ledger: Ledger) -> None:
    """A provider that sends no webhooks must not help the code that waits for them."""
    silent = Provider("silent", CLIENT_KEY, ledger, str)
    with pytest.raises(LookupError, match="'silent' sends no webhooks"):
        silent.deliver_webhooks(print)
    with pytest.raises(LookupError, match="'silent' sends no webhooks"):
        silent.on_event(print)
    pay = provider(ledger)
    with pytest.raises(LookupError, match="does not know who takes its webhooks"):
        pay.deliver_webhooks()

    async def handle(event: Event) -> None:
        raise AssertionError(event)

    with pytest.raises(TypeError, match="deliver_webhooks_async"):
        pay.on_event(handle)  # type: ignore[arg-type]


def test_the_order_and_a_lost_acknowledgement_are_chosen(ledger: Ledger) -> None:
    """The second event first, its acknowledgement lost, so it comes again after the first one."""
    pay = provider(ledger)
    for key in ("k", "l"):
        pay.call("refund", 1, key=key)
    announced = choosing(1, 1)
    seen: list[str] = []
    assert pay.deliver_webhooks(lambda event: seen.append(event.id)) == ()
    assert seen == ["evt_pay_2", "evt_pay_1", "evt_pay_2"]
    shown = [(boundary.target, boundary.options) for boundary in announced]
    assert shown[0] == ("pay tells", ("evt_pay_1 receipt.done", "evt_pay_2 receipt.done"))
    assert shown[1] == ("pay hears of evt_pay_2", ("acknowledged", "the acknowledgement is lost"))
    assert shown[-1] == ("pay hears of evt_pay_2", ("acknowledged",))
    assert {boundary.kind for boundary in announced} == {"webhook"}
    assert all(event.acknowledged for event in ledger.events())


def test_accepted_work_is_told_when_it_has_ended(ledger: Ledger) -> None:
    """Nothing at 202; the event when it is due."""
    pay = provider(ledger, TELLS_LATER)
    pay.call("refund", 1, key="k")
    seen: list[str] = []

    def handle(event: Event) -> None:
        seen.append(event.kind)

    assert pay.deliver_webhooks(handle) == () and seen == []
    ledger.set_now(EPOCH_S + 2)
    assert pay.deliver_webhooks(handle) == () and seen == ["receipt.done"]


def test_an_event_may_come_before_the_response(ledger: Ledger) -> None:
    """The handler has run when the call returns; whether it does is chosen."""
    pay = provider(ledger)
    seen: list[str] = []
    pay.on_event(lambda event: seen.append(event.id))
    choosing(0)
    pay.call("refund", 1, key="k")
    assert seen == []
    announced = choosing(1)
    pay.call("refund", 1, key="l")
    assert seen == ["evt_pay_2"]
    (early,) = [boundary for boundary in announced if "before" in boundary.target]
    assert early.options == ("no event comes yet", "evt_pay_2 receipt.done")
    pay.deliver_webhooks()
    assert seen == ["evt_pay_2", "evt_pay_1"]


# Explored: a wallet that is credited by webhook.


class Unsettled(Exception):
    """Not credited yet; it must be started again."""


@contextmanager
def wallet(once: Once) -> Iterator[sqlite3.Connection]:
    once.count("wallet.db", "SELECT reference, count(*) FROM credits GROUP BY reference")
    with closing(sqlite3.connect(once.path / "wallet.db", isolation_level=None)) as db:
        db.execute("CREATE TABLE IF NOT EXISTS credits(reference TEXT, event TEXT)")
        db.execute("CREATE TABLE IF NOT EXISTS orders(reference TEXT PRIMARY KEY, payment TEXT)")
        yield db


def credits_each_delivery(db: sqlite3.Connection, event: Event) -> None:
    reference = event.json()["data"]["payload"]["order"]
    db.execute("INSERT INTO credits VALUES (?, ?)", (reference, event.id))


def credits_each_event_once(db: sqlite3.Connection, event: Event) -> None:
    reference = event.json()["data"]["payload"]["order"]
    db.execute(
        "INSERT INTO credits SELECT ?, ? WHERE NOT EXISTS (SELECT 1 FROM credits WHERE event = ?)",
        (reference, event.id, event.id),
    )


def drops_what_it_does_not_know(db: sqlite3.Connection, event: Event) -> None:
    payment = event.json()["data"]["id"]
    if db.execute("SELECT 1 FROM orders WHERE payment = ?", (payment,)).fetchone():
        credits_each_event_once(db, event)


Take = Callable[[sqlite3.Connection, Event], None]


def tops_up(once: Once, take: Take, pay_for: Callable[[Provider], Any]) -> None:
    """Buy one credit; it is there when the provider has told so."""
    pay = once.provider("pay", contract=TELLS)
    with wallet(once) as db:
        pay.on_event(lambda event: take(db, event))
        if db.execute("SELECT 1 FROM orders").fetchone() is None:
            db.execute("INSERT INTO orders VALUES ('order_1', ?)", (pay_for(pay),))
        pay.deliver_webhooks()
        if db.execute("SELECT 1 FROM credits").fetchone() is None:
            raise Unsettled


def by_call(pay: Provider) -> Any:
    return pay.call("charge", {"order": "order_1"}, key="order_1").raise_for_status().body["id"]


def posting(client: httpx.Client, url: str) -> Any:
    answer = client.post(f"{url}/charges", json={"order": "order_1"}, headers={"idempotency-key": "order_1"})
    return answer.raise_for_status().json()["id"]


def by_router(pay: Provider) -> Any:
    with pay.router, httpx.Client(verify=False) as client:
        return posting(client, pay.base_url)


def by_server(pay: Provider) -> Any:
    with httpx.Client(verify=False, trust_env=False) as client:
        return posting(client, pay.url)


def by_requests(pay: Provider) -> Any:
    import requests

    answer = requests.post(f"{pay.url}/charges", json={"order": "order_1"}, headers={"idempotency-key": "order_1"})
    return answer.json()["id"]


def by_aiohttp(pay: Provider) -> Any:
    import aiohttp

    async def main() -> Any:
        async with aiohttp.ClientSession(headers={"idempotency-key": "order_1"}) as session:
            return (await (await session.post(f"{pay.url}/charges", json={"order": "order_1"})).json())["id"]

    return asyncio.run(main())


def topped_up(take: Take, pay_for: Callable[[Provider], Any] = by_call, **how: Any) -> Report:
    return explore(lambda once: tops_up(once, take, pay_for), name="tops_up", **{"soft_faults": 0, **how})


def story(report: Report) -> str:
    return " ".join(terminal.render(report).split())


def test_a_handler_that_credits_each_delivery_credits_twice() -> None:
    """Known-bad: at least once means that some events come twice."""
    report = topped_up(credits_each_delivery)
    assert report.verdict is Verdict.DUPLICATE, told(report)
    assert report.violations[0].confirmed
    assert "webhook pay hears of evt_pay_1" in story(report)
    assert "pay: tells: outcomes are told by webhooks" in "\n".join(report.assumptions)


@pytest.mark.slow
def test_a_handler_that_remembers_events_is_exactly_once() -> None:
    """The corrected twin, under crashes between its commit and its answer, and lost acknowledgements."""
    report = topped_up(credits_each_event_once)
    assert proven(report), told(report)


@pytest.mark.parametrize("pay_for", [by_call, by_router, by_server, by_requests, by_aiohttp])
def test_a_handler_that_knows_only_what_was_answered_drops_an_early_event(pay_for: Callable[[Provider], Any]) -> None:
    """Known-bad, over every transport: the event comes first, is acknowledged, and never comes again."""
    report = topped_up(drops_what_it_does_not_know, pay_for)
    assert report.verdict is Verdict.STUCK, told(report)
    assert "webhook pay tells before its response" in story(report)
    assert "> evt_pay_1 receipt.done" in story(report)


def captures_what_is_authorised(db: sqlite3.Connection, event: Event, otherwise: int) -> int:
    if event.json()["data"]["operation"] == "authorise":
        db.execute("INSERT OR REPLACE INTO orders VALUES ('order_1', ?)", (event.id,))
    elif db.execute("SELECT 1 FROM orders").fetchone() is None:
        return otherwise
    else:
        credits_each_event_once(db, event)
    return 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("otherwise", "verdict"), [(200, Verdict.STUCK), (409, Verdict.EXACTLY_ONCE)], ids=["drops", "refuses"]
)
def test_events_come_in_any_order(otherwise: int, verdict: Verdict) -> None:
    """S2.6: one that comes too early is refused, so that it comes again; acknowledged and dropped, it is lost."""

    def body(once: Once) -> None:
        pay = once.provider("pay", contract=TELLS)
        with wallet(once) as db:
            for step in ("authorise", "capture"):
                pay.call(step, {"order": "order_1"}, key=step).raise_for_status()
            pay.deliver_webhooks(lambda event: captures_what_is_authorised(db, event, otherwise))
            if db.execute("SELECT 1 FROM credits").fetchone() is None:
                raise Unsettled

    report = explore(body, soft_faults=0, redeliver=0)
    assert report.verdict is verdict, told(report)
    assert proven(report) == (verdict is Verdict.EXACTLY_ONCE)


# Handlers that are applications: two lines.


def test_a_wsgi_application_takes_webhooks(ledger: Ledger) -> None:
    """The recipe of the docs, with what is already there: httpx."""
    seen: list[bytes] = []

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        seen.append(environ["wsgi.input"].read() + environ["HTTP_WEBHOOK_ID"].encode())
        start_response("204 No Content", [])
        return []

    pay = provider(ledger)
    pay.call("refund", 1, key="k")
    with httpx.Client(transport=httpx.WSGITransport(app=app), base_url="http://app", verify=False) as shop:
        waiting = pay.deliver_webhooks(
            lambda event: shop.post("/hooks", content=event.body, headers=event.headers).status_code
        )
    assert waiting == ()
    assert seen[0].endswith(b"evt_pay_1")


@pytest.mark.parametrize("status", [200, 503])
def test_an_asgi_application_takes_webhooks(ledger: Ledger, status: int) -> None:
    """The same for an async handler, which is awaited."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def main() -> tuple[Event, ...]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://app", verify=False) as shop:

            async def post(event: Event) -> int:
                return (await shop.post("/hooks", content=event.body, headers=event.headers)).status_code

            return await pay.deliver_webhooks_async(post)

    pay = provider(ledger)
    pay.call("refund", 1, key="k")
    assert ids(asyncio.run(main())) == ([] if status == 200 else ["evt_pay_1"])


def test_an_async_body_is_explored_with_webhooks() -> None:
    """The awaited handler meets the same choices."""

    async def body(once: Once) -> None:
        pay = once.provider("pay", contract=TELLS)
        with wallet(once) as db:
            by_call(pay)

            async def take(event: Event) -> None:
                credits_each_delivery(db, event)

            await pay.deliver_webhooks_async(take)

    report = explore(body, soft_faults=0, redeliver=0)
    assert report.verdict is Verdict.DUPLICATE, told(report)


@pytest.mark.slow
def test_accepted_work_that_ends_before_its_response_is_told_before_it() -> None:
    """202 may be heard after the webhook that says how it ended; code that stores "pending" then waits for ever."""

    def body(once: Once) -> None:
        pay = once.provider("pay", contract=TELLS_LATER)
        with wallet(once) as db:

            def take(event: Event) -> None:
                ended = "done" if event.kind == "receipt.done" else "failed"
                db.execute("UPDATE orders SET payment = ?", (ended,))

            pay.on_event(take)
            if db.execute("SELECT 1 FROM orders").fetchone() is None:
                by_call(pay)
                db.execute("INSERT INTO orders VALUES ('order_1', 'pending')")
            time.sleep(2)
            pay.deliver_webhooks()
            once.claim({"pending": "in_progress"}.get(db.execute("SELECT payment FROM orders").fetchone()[0], "done"))

    report = explore(body, soft_faults=0, redeliver=0)
    stuck = [violation for violation in report.violations if violation.verdict is Verdict.STUCK]
    assert stuck, told(report)
    assert "> evt_pay_1 receipt.done" in story(report)
    assert "! the accepted work is done => effect number 1" in story(report)
