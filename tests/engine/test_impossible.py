"""The proof that no code can be both safe and live under a contract."""

from __future__ import annotations

from once_fakes import Contract
from pytest_once import Once, Verdict, explore
from pytest_once.reporting import terminal
from tests.engine.bodies import NoAnswer, careful, careless, put, state, tasks

ORDER = {"order": "order_1"}


def act_then_mark(once: Once) -> None:
    with tasks(once) as db:
        if state(db) != "done":
            careless(once).call("refund", ORDER)
            put(db, "done")


def mark_then_act(once: Once) -> None:
    with tasks(once) as db:
        if state(db) != "done":
            put(db, "done")
            careless(once).call("refund", ORDER)


def test_a_provider_without_key_or_lookup_cannot_be_used_safely_and_live() -> None:
    """S1.9: a receiver without stable identity and look-up leaves reconciliation as the only honest way out."""
    for body, verdict in ((act_then_mark, Verdict.DUPLICATE), (mark_then_act, Verdict.OMISSION)):
        report = explore(body, profile="crash", key="order_1")
        assert report.verdict is verdict
        assert "pay has acted not at all in the first and once in the second" in report.impossible
        assert "an idempotency key" in report.impossible and "look-up" in report.impossible
        assert "contract-impossible" in " ".join(terminal.render(report).split())


def test_a_tool_that_only_acts_is_such_a_provider() -> None:
    def body(once: Once) -> None:
        with tasks(once) as db:
            if state(db) != "done":
                once.tool(lambda: None, name="mail", key="order_1")()
                put(db, "done")

    assert "mail recognises no repeated request" in explore(body, profile="crash").impossible


def test_code_that_does_not_use_the_key_is_its_own_fault() -> None:
    """The contract would allow it: nothing impossible is claimed."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            if state(db) != "done":
                careful(once).call("refund", ORDER)
                put(db, "done")

    report = explore(body, profile="crash", key="order_1")
    assert report.verdict is Verdict.DUPLICATE
    assert report.impossible == ""


def test_with_a_lookup_crashes_alone_are_not_impossible() -> None:
    """The states differ in what the provider answers."""

    def body(once: Once) -> None:
        contract = Contract(name="lookup", dedup="none", lookup="by_client_ref")
        with tasks(once) as db:
            if state(db) != "done":
                once.provider("mail", contract=contract).call("send", {"client_ref": "order_1"})
                put(db, "done")

    report = explore(body, profile="crash", key="order_1")
    assert report.verdict is Verdict.DUPLICATE
    assert report.impossible == ""


def test_code_that_gives_up_honestly_is_told_why_it_has_to() -> None:
    """ESCALATED is the right answer here, and the report says so."""

    def body(once: Once) -> None:
        with tasks(once) as db:
            if state(db) == "done":
                return
            if state(db) == "begun":
                raise NoAnswer
            put(db, "begun")
            try:
                careless(once).call("refund", ORDER).raise_for_status()
            except Exception as error:
                raise NoAnswer from error
            put(db, "done")

    report = explore(body, key="order_1", blocked=(NoAnswer,), faults=("lost-request", "lost-response"))
    assert report.verdict is Verdict.ESCALATED and report.passed
    assert "contract-impossible" in report.impossible


def test_right_code_is_told_nothing_of_the_kind() -> None:
    def body(once: Once) -> None:
        with tasks(once) as db:
            if state(db) != "done":
                careful(once).call("refund", ORDER, key="order_1").raise_for_status()
                put(db, "done")

    assert explore(body, key="order_1").impossible == ""
