"""A report names the contract, and of its promises those that some answer relied upon."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from once_fakes import CLIENT_KEY, Contract, Provider
from once_fakes.promises import mattered, promises
from pytest_once import Once, Report, explore
from pytest_once.ledger import Ledger
from pytest_once.reporting import terminal

WORDY = Contract(name="wordy", lookup="list_only", on_concurrent="reject", stored_outcomes="all", scope=("account",))


def said_of(act: Callable[[Provider], object], contract: Contract) -> list[str]:
    def body(once: Once) -> None:
        act(once.provider("pay", contract=contract))

    report: Report = explore(body, soft_faults=0)
    assert all(len(line) <= 80 for line in terminal.render(report).splitlines())
    return [said for said in report.assumptions if said.startswith("pay: ")]


def test_what_decided_comes_in_full_and_the_rest_as_a_number() -> None:
    """A reader checks the promises that matter against the real provider, not all twelve."""
    said = said_of(lambda pay: pay.call("refund", 1, key="k"), WORDY)
    assert said == [
        "pay: wordy: effect and receipt commit in one transaction; receipts never expire; the same key with another "
        "payload is refused with 422",
        "pay: wordy: 5 more promises, on which nothing depended",
    ]


def test_a_question_relies_on_the_look_up() -> None:
    """It leaves no arrival, so it is found in what the caller was told."""
    said = said_of(lambda pay: (pay.call("refund", 1, key="k"), pay.list()), WORDY)
    assert said[1] == (
        "pay: wordy: effects can be listed, not found by a reference of the client's; look-ups show them at once"
    )
    assert said[2] == "pay: wordy: 4 more promises, on which nothing depended"


def test_where_nothing_mattered_the_contract_is_named_all_the_same() -> None:
    """A provider that is asked for nothing has nothing to keep its promises about."""
    once = replace(CLIENT_KEY, name="strict", on_missing_key="error")

    def body(test: Once) -> None:
        test.provider("unused", contract=once)
        test.tool(lambda: None, name="mail", key="m")()

    assert "unused: strict: 2 promises, on which nothing depended" in explore(body, profile="crash").assumptions


def relied(ledger: Ledger) -> list[str]:
    return [arrival.relied for arrival in ledger.arrivals()]


@pytest.mark.parametrize(
    ("contract", "requests", "said"),
    [
        (replace(CLIENT_KEY, dedup="none"), [(1, "k")], ["dedup"]),
        (CLIENT_KEY, [(1, "k"), (1, "k")], ["", "dedup,replay_body"]),
        (CLIENT_KEY, [(1, "k"), (2, "k")], ["", "on_mismatch"]),
        (CLIENT_KEY, [(1, None)], ["on_missing_key"]),
        (replace(CLIENT_KEY, atomicity="effect_first"), [(1, "k")], ["atomicity"]),
        (replace(CLIENT_KEY, acceptance="async202"), [(1, "k")], ["acceptance"]),
        (replace(CLIENT_KEY, scope=("endpoint",)), [(1, "k"), (1, "l")], ["", ""]),
    ],
)
def test_an_arrival_notes_what_decided_its_answer(
    ledger: Ledger, contract: Contract, requests: list[tuple[int, str | None]], said: list[str]
) -> None:
    """In the order in which it was looked at."""
    pay = Provider("pay", contract, ledger, str)
    for payload, key in requests:
        pay.call("refund", payload, key=key)
    assert relied(ledger) == said


def test_a_key_known_in_another_scope_relies_on_the_scope(ledger: Ledger) -> None:
    """Only then would a provider without that scope have answered otherwise."""
    pay = Provider("pay", replace(CLIENT_KEY, scope=("endpoint",)), ledger, str)
    pay.call("refund", 1, key="k")
    assert pay.call("charge", 1, key="k").outcome == "executed"
    assert relied(ledger) == ["", "scope"]


def test_an_expired_receipt_relies_on_the_retention(ledger: Ledger) -> None:
    """The repetition acted because the receipt was gone."""
    pay = Provider("pay", replace(CLIENT_KEY, retention_s=60), ledger, str)
    pay.call("refund", 1, key="k")
    ledger.set_now(ledger.now_s() + 60)
    pay.call("refund", 1, key="k")
    assert relied(ledger) == ["", "retention_s"]


def test_every_sentence_can_matter() -> None:
    """A parameter that no sentence names would be hidden for ever."""
    for contract in (WORDY, CLIENT_KEY, replace(CLIENT_KEY, acceptance="async202", webhooks="at_least_once")):
        names = [parameter for parameter, _ in promises(contract)]
        assert mattered(contract, names) == (tuple(sentence for _, sentence in promises(contract)), 0)
        assert mattered(contract, ()) == ((), len(names))
