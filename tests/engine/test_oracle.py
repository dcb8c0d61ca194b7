"""Which effects belong together: logical keys, learned from the fault-free run or said by the test."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from pytest_once import Once, Report, Verdict, explore
from pytest_once.ledger import Effect
from tests.engine.bodies import careful, careless, proven, put, state, tasks, told, verdicts


def crashed(body: Callable[[Once], Any], **marker: Any) -> Report:
    """Explore crashes alone."""
    return explore(body, soft_faults=0, **marker)


def counts(report: Report) -> dict[str, int]:
    return {key.name: n for key, n in report.intended.items()}


# Learned


VOLATILE: list[Callable[[], object]] = [
    lambda: str(uuid.uuid4()),
    lambda: time.time(),
    lambda: datetime.now(UTC).isoformat(),
    lambda: {"trace": [f"span-{uuid.uuid4()}", time.time_ns()]},
    lambda: uuid.uuid4().int % 7919,
]


@pytest.mark.parametrize("value", VOLATILE, ids=range(len(VOLATILE)))
def test_what_differs_from_run_to_run_identifies_nothing(value: Callable[[], object]) -> None:
    """Two requests with different request ids for one refund are two effects for one intent, not two intents."""

    def body(once: Once) -> None:
        careless(once).call("refund", {"order": "order_1", "request": value()})

    report = crashed(body)
    assert report.verdict is Verdict.DUPLICATE
    (violation,) = report.violations
    assert (violation.expected, violation.actual) == (1, 2)
    assert list(counts(report).values()) == [1]
    assert "order=order_1" in next(iter(counts(report)))


def test_a_volatile_value_does_not_hide_what_is_different() -> None:
    """Two orders with request ids remain two intents: losing one of them is an omission of that one."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            for order in ("order_1", "order_2"):
                if state(db, order) is None:
                    put(db, "sent", order)
                    careless(once).call("refund", {"order": order, "request": str(uuid.uuid4())})

    report = crashed(body)
    assert sorted(counts(report).values()) == [1, 1]
    assert verdicts(report) == {"OMISSION"}
    assert len(report.violations) == 2


def drifting(once: Once) -> None:
    """The recovery computes the amount anew, with the fee of the second attempt."""
    with tasks(once) as db:
        attempts = 1 if state(db) is None else 2
        put(db, "sending")
        careful(once).call("refund", {"order": "order_1", "amount": 500 + attempts}, key="order_1")


def test_an_amount_that_drifts_in_recovery_is_another_effect() -> None:
    """The customer gets another sum than intended; the report says what to do if that is meant."""
    report = crashed(drifting)
    assert report.verdict is Verdict.DUPLICATE
    (violation,) = [found for found in report.violations if found.verdict is Verdict.DUPLICATE]
    assert violation.key is not None
    assert "amount=502" in violation.key.name
    assert (violation.expected, violation.actual) == (0, 1)
    assert "another payload" in told(report)
    assert "key=" in told(report)


@pytest.mark.slow
def test_a_drift_that_is_declared_irrelevant_is_one_intent() -> None:
    """The remedy that the message names, in each of its forms."""
    assert crashed(drifting, key="order_1").verdict is Verdict.EXACTLY_ONCE
    assert crashed(drifting, key=lambda effect: str(json.loads(effect.payload)["order"])).passed

    def intending(once: Once) -> None:
        once.intend("order_1")
        drifting(once)

    assert crashed(intending).passed


def test_two_equal_intents_are_expected_twice() -> None:
    """A multiset, not a set: two equal gifts are two gifts, and three would be one too many."""

    def body(once: Once, keys: Callable[[], list[str]]) -> None:
        for key in keys():
            careful(once).call("gift", {"to": "anna"}, key=key)

    report = crashed(lambda once: body(once, lambda: ["first", "second"]))
    assert proven(report)
    assert list(counts(report).values()) == [2]
    report = crashed(lambda once: body(once, lambda: ["first", str(uuid.uuid4())]))
    assert report.verdict is Verdict.DUPLICATE
    assert (report.violations[0].expected, report.violations[0].actual) == (2, 3)


def test_operations_and_providers_are_part_of_the_identity() -> None:
    """The same order is reserved, paid and mailed, each of it once."""

    def body(once: Once) -> None:
        careful(once).call("reserve", {"order": "order_1"}, key="r")
        careful(once).call("pay", {"order": "order_1"}, key="p")
        once.provider("mail", contract="client_key").call("send", {"order": "order_1"}, key="m")

    report = crashed(body)
    assert proven(report)
    assert [(key.provider, key.operation) for key in report.intended] == [
        ("mail", "send"),
        ("pay", "pay"),
        ("pay", "reserve"),
    ]


# The Idempotency-Key header alone decides nothing


def test_one_order_under_two_header_keys_is_one_intent() -> None:
    """Counting by header would call this exactly once for each key; the customer would not."""

    def body(once: Once) -> None:
        careful(once).call("refund", {"order": "order_1"}, key=f"attempt-{uuid.uuid4()}")

    report = crashed(body)
    assert report.verdict is Verdict.DUPLICATE
    assert (report.violations[0].expected, report.violations[0].actual) == (1, 2)


def test_two_orders_under_one_header_key_are_two_intents() -> None:
    """With a provider that ignores the header both are done, and both are counted."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            for order in ("order_1", "order_2"):
                if state(db, order) is None:
                    careless(once).call("refund", {"order": order}, key="the same")
                    put(db, "done", order)

    report = crashed(body)
    assert sorted(counts(report).values()) == [1, 1]
    assert len(report.violations) == 2
    assert verdicts(report) == {"DUPLICATE"}


def test_a_header_key_shared_by_two_orders_is_noticed_when_the_provider_swallows_one() -> None:
    """The second order is answered with the first one's receipt: to the code it looks done."""
    from once_fakes.contract import Contract

    def body(once: Once) -> None:
        provider = once.provider("pay", contract=Contract(name="lenient", on_mismatch="replay"))
        for order in ("order_1", "order_2"):
            provider.call("refund", {"order": order}, key="the same")

    report = crashed(body)
    assert not report.passed
    assert report.verdict is Verdict.CONFLICT_MISSED
    assert crashed(body, keys=["order_1", "order_2"]).verdict in (Verdict.OMISSION, Verdict.CONFLICT_MISSED)


# Said by the test


def order_of(effect: Effect) -> str | None:
    value = json.loads(effect.payload)
    return str(value["order"]) if effect.provider == "pay" else None


KEYED: list[dict[str, Any]] = [
    {"key": "order_1"},
    {"key": order_of},
    {"keys": ["order_1"]},
    {"keys": {"order_1": 1}},
]


@pytest.mark.parametrize("marker", KEYED, ids=["literal", "callable", "keys", "counts"])
def test_a_key_that_the_test_says_is_the_name_in_the_report(marker: dict[str, Any]) -> None:
    """In business terms, so that the report is about the order and not about a payload."""

    def body(once: Once) -> None:
        careless(once).call("refund", {"order": "order_1", "text": uuid.uuid4().hex, "amount": 500})

    report = crashed(body, **marker)
    assert report.verdict is Verdict.DUPLICATE
    assert counts(report) == {"order_1": 1}
    assert str(report.violations[0].key) == "order_1 (pay refund)"


def test_a_literal_key_is_found_as_a_whole_word_in_payload_or_path() -> None:
    """order_1 is not order_10; and a REST path names the order as well as a body does."""

    def body(once: Once) -> None:
        careful(once).call("POST /orders/order_1/refunds", {"amount": 5}, key="a")
        careful(once).call("refund", {"order": "order_10"}, key="b")

    report = crashed(body, key="order_1")
    assert proven(report)
    assert sorted(key.name for key in report.intended) == ["order=order_10", "order_1"]


def test_a_literal_key_that_no_effect_names_is_an_omission() -> None:
    """A typo in the key must not make the test pass for want of anything to count."""

    def body(once: Once) -> None:
        careful(once).call("refund", {"order": "order_1"}, key="order_1")

    report = crashed(body, key="order_I")
    assert (report.verdict, report.passed) == (Verdict.OMISSION, False)
    assert "order_I" in report.problem


def test_a_payload_field_named_by_the_provider_is_the_key() -> None:
    """Where every request carries the business key, nothing else has to be said."""

    def body(once: Once) -> None:
        provider = once.provider("pay", contract="none", key_field="metadata.order")
        provider.call("refund", {"metadata": {"order": "order_1"}, "amount": 500, "trace": str(uuid.uuid4())})

    report = crashed(body)
    assert report.verdict is Verdict.DUPLICATE
    assert counts(report) == {"order_1": 1}


@pytest.mark.parametrize("field", ["order", "ordr"])
def test_a_key_field_that_no_request_has_is_told(field: str) -> None:
    """Misspelt, it would leave the reader believing that effects are told apart by it."""

    def body(once: Once) -> None:
        once.provider("pay", contract="none", key_field=field).call("refund", {"order": "order_1"})

    said = [one for one in crashed(body).assumptions if "slip of the pen" in one]
    assert [one.split(" names")[0] for one in said] == ([] if field == "order" else ["pay: key_field='ordr'"])


def test_a_tool_is_counted_under_its_key_or_its_arguments() -> None:
    """A literal, a function of the call, or else what it was called with, by parameter name."""

    def send(to: str, text: str = "hello") -> None:
        """Sends nothing."""

    def literal(once: Once) -> None:
        once.tool(send, key="welcome")("anna")

    def computed(once: Once) -> None:
        once.tool(send, key=lambda to, text="": f"welcome {to}")("anna", text=str(uuid.uuid4()))

    def arguments(once: Once) -> None:
        with tasks(once) as db:
            tool = once.tool(send)
            # Positional in the first life, by keyword in the next: the same call.
            tool("anna") if state(db) is None else tool(to="anna", text="hello")
            put(db, "sent")

    for body, name in (
        (literal, "welcome"),
        (computed, "welcome anna"),
        (arguments, "text=hello to=anna"),
    ):
        report = crashed(body)
        assert report.verdict is Verdict.DUPLICATE, told(report)
        assert counts(report) == {name: 1}
        assert report.violations[0].actual == 2


def test_an_intent_may_be_about_one_provider_only() -> None:
    """The order is named to three parties, and only the payment is to happen twice."""

    def body(once: Once) -> None:
        once.intend("order_1", 2, provider="pay")
        for number in range(2):
            careful(once).call("instalment", {"order": "order_1", "number": number}, key=f"order_1/{number}")
        once.provider("mail", contract="client_key").call("send", {"about": "order_1"}, key="mail")

    report = crashed(body)
    assert proven(report)
    assert {key.provider: n for key, n in report.intended.items()} == {"mail": 1, "pay": 2}


def test_effects_in_the_users_own_table_are_counted_like_a_providers() -> None:
    """The other party may be a database: S1's warehouse is one."""

    def body(once: Once, statement: str) -> None:
        once.count("tasks.db", "SELECT state, COUNT(*) FROM tasks WHERE note = 'reserved' GROUP BY state")
        with tasks(once) as db:
            db.execute(statement)

    naive = crashed(
        lambda once: body(once, "INSERT INTO tasks SELECT 'r' || count(*), 'bearing', 'reserved' FROM tasks")
    )
    assert naive.verdict is Verdict.DUPLICATE
    assert counts(naive) == {"bearing": 1}
    assert proven(crashed(lambda once: body(once, "INSERT OR IGNORE INTO tasks VALUES ('r', 'bearing', 'reserved')")))


def test_different_effects_in_two_fault_free_runs_are_not_guessed_at() -> None:
    """Which of them was intended is for the test to say."""

    def body(once: Once) -> None:
        def send(to: str) -> None:
            if time.gmtime().tm_mon != 3:  # the first run's month, not the second's
                raise LookupError

        for to in ("anna", "bert"):
            try:
                (once.tool(send) if to == "anna" else once.tool(lambda to: None, name="send"))(to)
            except LookupError:
                continue

    report = crashed(body)
    assert not report.passed
    assert "two fault-free runs had different effects" in report.problem
    assert "once.intend" in report.problem
