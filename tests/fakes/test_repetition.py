"""What each promise about repeated requests does: when a provider recognises one, and for how long."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest

from once_fakes import CLIENT_KEY, CLIENT_KEY_24H, Contract, Provider
from once_fakes.held import deliver
from pytest_once.boundaries import Announcer, Boundary, Order, connect
from pytest_once.clock import EPOCH_S
from pytest_once.ledger import Ledger

BY_ORDER = Contract(name="by_order", dedup="natural_key", natural_key_field="order")
WINDOW = Contract(name="window", dedup="content_window", window_s=30)
DAY_S = 86400.0


def provider(ledger: Ledger, contract: Contract) -> Provider:
    return Provider("pay", contract, ledger, lambda: "http://127.0.0.1:1/token")


def outcomes(ledger: Ledger) -> list[str]:
    return [arrival.outcome for arrival in ledger.arrivals()]


def ordering(fault: str | None, kind: str) -> list[Boundary]:
    """Order a fault at the first boundary of that kind; returns the boundaries as they are announced."""
    announced: list[Boundary] = []

    def ask(boundary: Boundary) -> Order:
        first = boundary.kind == kind and all(known.kind != kind for known in announced)
        announced.append(boundary)
        return Order(fault if first else None)

    connect(Announcer(ask))
    return announced


# How long a receipt lives.


def test_a_receipt_is_forgotten_when_its_time_is_over(ledger: Ledger) -> None:
    """Retries that go on for longer than the provider remembers act again; nothing else shows that."""
    pay = provider(ledger, CLIENT_KEY_24H)
    pay.call("refund", 1, key="k")
    assert [receipt.expires_s for receipt in ledger.receipts()] == [EPOCH_S + DAY_S]

    ledger.set_now(EPOCH_S + DAY_S - 0.001)
    assert pay.call("refund", 1, key="k").outcome == "replayed"
    ledger.set_now(EPOCH_S + DAY_S)
    assert pay.call("refund", 1, key="k").body["id"] == "pay_2"
    assert [receipt.expires_s for receipt in ledger.receipts()] == [EPOCH_S + 2 * DAY_S]


def test_an_expired_key_is_free_for_another_payload(ledger: Ledger) -> None:
    """What is forgotten cannot be compared."""
    pay = provider(ledger, CLIENT_KEY_24H)
    pay.call("refund", 1, key="k")
    assert pay.call("refund", 2, key="k").status == 422
    ledger.set_now(EPOCH_S + 2 * DAY_S)
    assert pay.call("refund", 2, key="k").outcome == "executed"


def test_expired_receipts_of_other_keys_are_no_state(ledger: Ledger) -> None:
    """They mean nothing any more; kept, they would make equal worlds look different."""
    pay = provider(ledger, CLIENT_KEY_24H)
    pay.call("refund", 1, key="old")
    ledger.set_now(EPOCH_S + 2 * DAY_S)
    pay.call("refund", 1, key="new")
    assert [receipt.key for receipt in ledger.receipts()] == ["new"]


def test_receipts_live_for_ever_unless_the_contract_says_otherwise(ledger: Ledger) -> None:
    """The plain contract has no instants in its state, or every moment would be another state."""
    pay = provider(ledger, CLIENT_KEY)
    pay.call("refund", 1, key="k")
    assert [receipt.expires_s for receipt in ledger.receipts()] == [None]
    ledger.set_now(EPOCH_S + 3650 * DAY_S)
    assert pay.call("refund", 1, key="k").outcome == "replayed"


def test_when_a_receipt_expires_is_state(ledger: Ledger) -> None:
    """Two worlds in which it expires at other times have other futures."""
    pay = provider(ledger, CLIENT_KEY_24H)
    pay.call("refund", 1, key="k")
    ((_, row),) = (found for found in ledger.state_rows() if found[0] == "receipts")
    assert row[-2] == EPOCH_S + DAY_S


def test_a_late_request_arrives_after_its_receipt_was_forgotten(ledger: Ledger) -> None:
    """The promise ends with the retention, also for what was sent before that."""
    pay = provider(ledger, CLIENT_KEY_24H)
    ordering("late-copy", "call")
    pay.call("refund", 1, key="k")
    connect(None)
    ledger.set_now(EPOCH_S + 2 * DAY_S)
    arrived = deliver(ledger, 1)
    assert arrived is not None and arrived.outcome == "executed"
    assert len(ledger.effects()) == 2


def test_an_explored_process_tells_the_provider_its_time(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake lives in the time of the process under test, which is virtual."""
    timed = provider(ledger, CLIENT_KEY_24H)
    timeless = Provider("mail", CLIENT_KEY, ledger, str)
    monkeypatch.setattr("time.time", lambda: EPOCH_S + 5)
    timed.call("refund", 1, key="k")
    assert ledger.now_s() == EPOCH_S  # nobody explores

    ordering(None, "call")
    timeless.call("send", 1, key="k")
    assert ledger.now_s() == EPOCH_S
    timed.call("refund", 1, key="k")
    assert ledger.now_s() == EPOCH_S + 5


# Other identities than a key.


def test_a_second_effect_of_a_natural_key_is_refused(ledger: Ledger) -> None:
    """Names and invoice numbers protect without any key; the second caller hears "already exists", not a receipt."""
    pay = provider(ledger, BY_ORDER)
    pay.call("refund", {"order": "o_1", "amount": 5}, key="a")
    second = pay.call("refund", {"order": "o_1", "amount": 6}, key="b")

    assert (second.status, second.outcome) == (409, "refused")
    assert second.body["error"]["type"] == "already_exists"
    assert second.body["error"]["param"] == "order"
    assert pay.call("refund", {"order": "o_2"}).outcome == "executed"
    assert pay.call("charge", {"order": "o_1"}).outcome == "executed"
    assert outcomes(ledger) == ["executed", "refused", "executed", "executed"]
    assert [arrival.key for arrival in ledger.arrivals()] == [None] * 4


def test_without_its_natural_key_a_request_acts_or_is_refused(ledger: Ledger) -> None:
    """A provider that makes up names (generateName) recognises nothing."""
    pay = provider(ledger, BY_ORDER)
    assert [pay.call("refund", {"amount": 5}).outcome for _ in range(2)] == ["executed", "executed"]
    strict = Provider("strict", replace(BY_ORDER, on_missing_key="error", missing_key_status=422), ledger, str)
    reply = strict.call("refund", {"amount": 5})
    assert (reply.status, reply.body["error"]["type"], reply.body["error"]["param"]) == (422, "field_missing", "order")


def test_a_natural_key_may_be_nested_have_its_own_status_and_become_free(ledger: Ledger) -> None:
    """An object's name is free again once the object is gone."""
    contract = replace(BY_ORDER, natural_key_field="meta.name", conflict_status=422, retention_s=60)
    pay = provider(ledger, contract)
    named = {"meta": {"name": "n"}}
    assert [pay.call("create", named).status for _ in range(2)] == [200, 422]
    ledger.set_now(EPOCH_S + 60)
    assert pay.call("create", named).status == 200


def test_the_same_content_is_refused_within_its_window_only(ledger: Ledger) -> None:
    """A window stops double clicks, not a retry after a restart."""
    pay = provider(ledger, WINDOW)
    assert pay.call("sale", {"amount": 5}).outcome == "executed"
    second = pay.call("sale", {"amount": 5})
    assert (second.status, second.body["error"]["type"]) == (409, "duplicate_request")
    assert pay.call("sale", {"amount": 6}).outcome == "executed"
    assert pay.call("auth", {"amount": 5}).outcome == "executed"

    ledger.set_now(EPOCH_S + 29.9)
    assert pay.call("sale", {"amount": 5}).status == 409
    ledger.set_now(EPOCH_S + 30)
    assert pay.call("sale", {"amount": 5}).outcome == "executed"


# A provider that dies between its two commits.


@pytest.mark.parametrize("fault", ["lost-response", "reset-response"])
@pytest.mark.parametrize(
    ("atomicity", "effects", "receipts", "again"),
    [("effect_first", 1, 0, "executed"), ("record_first", 0, 1, "replayed")],
)
def test_a_provider_may_die_between_effect_and_receipt(
    ledger: Ledger, atomicity: Any, effects: int, receipts: int, again: str, fault: str
) -> None:
    """Then its key protects nothing, or its receipt is of nothing; either way the code above is blameless."""
    pay = provider(ledger, replace(CLIENT_KEY, atomicity=atomicity))
    announced = ordering(fault, "provider")
    error = TimeoutError if fault == "lost-response" else ConnectionResetError
    with pytest.raises(error):
        pay.call("refund", 1, key="k")

    assert (len(ledger.effects()), len(ledger.receipts())) == (effects, receipts)
    (told,) = ledger.told()
    assert (told.what, told.arrival) == (error.__name__, 1)
    steps = {"effect_first": "effect done, receipt not yet", "record_first": "receipt written, effect not yet"}
    assert announced[1].target.startswith(f"pay refund: {steps[atomicity]}")
    assert pay.call("refund", 1, key="k").outcome == again
    assert len(ledger.effects()) == (2 if atomicity == "effect_first" else 0)


@pytest.mark.parametrize("atomicity", ["effect_first", "record_first"])
def test_where_it_does_not_die_both_commits_are_made(ledger: Ledger, atomicity: Any) -> None:
    """Undisturbed, the three kinds of atomicity cannot be told apart."""
    pay = provider(ledger, replace(CLIENT_KEY, atomicity=atomicity))
    plain = Provider("plain", CLIENT_KEY, ledger, str)
    for one in (pay, plain):
        assert [one.call("refund", 1, key="k").outcome for _ in range(2)] == ["executed", "replayed"]
    receipts = ledger.receipts()
    assert [receipt.effect for receipt in receipts] == [1, 2]
    assert receipts[0].fingerprint == receipts[1].fingerprint
    ordering("late", "call")
    with pytest.raises(TimeoutError):
        pay.call("refund", 1, key="l")
    connect(None)
    deliver(ledger, 1)
    assert (len(ledger.effects()), len(ledger.receipts())) == (3, 3)


def test_over_httpx_its_death_is_a_transport_error(ledger: Ledger) -> None:
    """Code under test catches its client's exceptions."""
    pay = provider(ledger, replace(CLIENT_KEY, atomicity="effect_first"))
    for fault, error in (("lost-response", httpx.ReadTimeout), ("reset-response", httpx.ReadError)):
        announced = ordering(fault, "provider")
        with pay.router, httpx.Client(verify=False) as client, pytest.raises(error):
            client.post(f"{pay.base_url}/refunds?x=1", json=1, headers={"idempotency-key": "k"})
        assert announced[0].target == "pay POST /refunds: effect done, receipt not yet written"
    assert (len(ledger.effects()), ledger.receipts()) == (2, [])


def test_the_loopback_server_is_for_atomic_contracts_only(ledger: Ledger) -> None:
    """It could not be stopped half way: a promise nobody tests must not look tested."""
    with pytest.raises(ValueError, match=r"no url, because its contract says atomicity='effect_first'.*use call\(\)"):
        _ = provider(ledger, replace(CLIENT_KEY, atomicity="effect_first")).url
