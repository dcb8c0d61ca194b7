"""A contract is data: it is checked when made, stored as JSON, and says what it assumes."""

from __future__ import annotations

from typing import Any

import pytest

from once_fakes import CLIENT_KEY, CLIENT_KEY_24H, NONE, Contract, contract_named, contracts


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"dedup": "magic"}, "dedup must be one of 'none', 'client_key', 'natural_key', 'conditional'"),
        ({"on_mismatch": "x"}, "on_mismatch must be one of 'error', 'replay', 'execute'"),
        ({"on_missing_key": "x"}, "on_missing_key must be one of 'execute', 'error'"),
        ({"mismatch_status": 201}, "mismatch_status must be an error status from 400 to 599, or 200 where"),
        ({"missing_key_status": True}, "missing_key_status must be an error status"),
        ({"key_header": ""}, "key_header must be a text that is not empty"),
        ({"dedup": "none", "on_missing_key": "error"}, "needs dedup='client_key' or 'natural_key'"),
        ({"atomicity": "x"}, "atomicity must be one of 'atomic', 'effect_first', 'record_first', not 'x'"),
        ({"lookup": "x"}, "lookup must be one of 'none', 'by_client_ref', 'by_key', 'list_only', not 'x'"),
        ({"conflict_status": 399}, "conflict_status must be an error status"),
        ({"reference_field": ""}, "reference_field must be a text that is not empty"),
        ({"retention_s": 0}, "retention_s must be a number of seconds, above 0, not 0"),
        ({"retention_s": "24h"}, "retention_s must be a number of seconds, above 0, not '24h'"),
        ({"retention_s": float("inf")}, "retention_s must be a number of seconds, above 0, not inf"),
        ({"lookup": "list_only", "visibility_lag_s": -1}, "visibility_lag_s must be a number of seconds, 0 or more"),
        ({"lookup": "list_only", "visibility_lag_s": None}, "visibility_lag_s must be a number of seconds"),
        ({"visibility_lag_s": 60}, "visibility_lag_s needs a lookup"),
        ({"dedup": "none", "retention_s": 60}, "retention_s needs dedup='client_key' or 'natural_key'"),
        ({"dedup": "content_window", "window_s": 9, "retention_s": 60}, "content_window' has window_s"),
        ({"dedup": "content_window"}, "window_s and dedup='content_window' need each other"),
        ({"window_s": 30}, "window_s and dedup='content_window' need each other"),
        ({"dedup": "natural_key"}, "natural_key_field, a text .* and dedup='natural_key' need each other"),
        ({"dedup": "natural_key", "natural_key_field": ""}, "natural_key_field, a text that is not empty"),
        ({"natural_key_field": "name"}, "natural_key_field, a text .* and dedup='natural_key' need each other"),
        ({"natural_key_field": 1}, "natural_key_field, a text that is not empty"),
        ({"dedup": "none", "atomicity": "effect_first"}, "atomicity='effect_first' needs a dedup"),
    ],
)
def test_a_wrong_value_is_refused_with_the_valid_ones(wrong: dict[str, Any], message: str) -> None:
    """A misspelt promise must not silently become another one."""
    with pytest.raises(ValueError, match=message):
        Contract(**{"name": "mine", **wrong})


def test_a_contract_survives_json() -> None:
    """The server reads contracts from the ledger and must apply the same one."""
    for contract in (
        Contract(name="mine", on_mismatch="execute", key_header="X-Key", mismatch_status=409),
        Contract(name="mine", retention_s=60, lookup="by_key", visibility_lag_s=1, atomicity="record_first"),
        Contract(name="mine", dedup="natural_key", natural_key_field="meta.name", conflict_status=422),
        Contract(name="mine", dedup="content_window", window_s=30, lookup="by_client_ref", reference_field="ref"),
    ):
        assert Contract.from_json(contract.to_json()) == contract
        assert Contract.from_json(contract.to_json()).to_json() == contract.to_json()


def test_equal_contracts_have_the_same_json() -> None:
    """The ledger refuses a second contract under one name, and compares the text."""
    assert Contract(name="m", retention_s=60).to_json() == Contract(name="m", retention_s=60.0).to_json()


def test_only_a_contract_that_reads_the_time_keeps_it() -> None:
    """Telling the ledger the time costs a write for each request."""
    assert not NONE.keeps_time
    assert not CLIENT_KEY.keeps_time
    assert CLIENT_KEY_24H.keeps_time
    assert Contract(name="m", dedup="content_window", window_s=30).keeps_time
    assert Contract(name="m", lookup="list_only", visibility_lag_s=1).keeps_time


@pytest.mark.parametrize("text", ["[]", "{}", '{"name":"a","retention":"1h"}', "nonsense"])
def test_json_that_is_no_contract_is_refused(text: str) -> None:
    """A parameter we do not implement must not be ignored."""
    with pytest.raises(ValueError):  # noqa: PT011 - the JSON decoder's own message is fine too
        Contract.from_json(text)


def test_contracts_are_found_by_name() -> None:
    """Names come from the command line and ini files, where a typo needs the list of names."""
    assert contract_named("client_key") is contracts.client_key is CLIENT_KEY
    assert contract_named("client_key_24h") is contracts.client_key_24h is CLIENT_KEY_24H
    assert contract_named("none") is contracts.none is NONE
    with pytest.raises(
        ValueError,
        match=r"no contract 'sqs_std' \(did you mean sqs_standard\?\); valid names are none, client_key",
    ):
        contract_named("sqs_std")
    assert contract_named("stripe") is contracts.stripe_v1


@pytest.mark.parametrize(
    ("contract", "said"),
    [
        (NONE, "none: every request acts"),
        (CLIENT_KEY, "receipts never expire; the same key with another payload is refused with 422"),
        (Contract(name="r", on_mismatch="replay"), "another payload gets the first reply again"),
        (Contract(name="e", on_mismatch="execute"), "another payload acts"),
        (Contract(name="m", on_missing_key="error"), "without Idempotency-Key is refused with 400"),
        (CLIENT_KEY_24H, "receipts live 24 h, and a repetition after that acts anew"),
        (Contract(name="d", retention_s=30 * 86400), "receipts live 30 d,"),
        (Contract(name="d", retention_s=300), "receipts live 5 min,"),
        (
            Contract(name="a", atomicity="effect_first"),
            "a: the effect commits before its receipt, and the provider may",
        ),
        (Contract(name="a", atomicity="record_first"), "the receipt commits before its effect, and the provider may"),
        (
            Contract(name="w", dedup="content_window", window_s=30),
            "the same operation and payload within 30 s is refused with 409",
        ),
        (
            Contract(name="k", dedup="natural_key", natural_key_field="order"),
            "the same order is refused with 409\nk: a request without order acts",
        ),
        (
            Contract(name="k", dedup="natural_key", natural_key_field="order", retention_s=3600),
            "is refused with 409 for 1 h, and acts anew after that",
        ),
        (Contract(name="l", lookup="by_client_ref"), "found by id or by client_ref; look-ups show them at once"),
        (Contract(name="l", lookup="by_key"), "found by id or by Idempotency-Key"),
        (
            Contract(name="l", lookup="list_only", visibility_lag_s=90),
            "can be listed, not found by a reference of the client's; look-ups show them once they are 90 s old",
        ),
    ],
)
def test_assumptions_say_what_the_contract_does(contract: Contract, said: str) -> None:
    """A report must print under which promises its verdict holds."""
    assert said in "\n".join(contract.assumptions())


def test_a_contract_shows_what_is_not_as_usual() -> None:
    """A failing test prints it; forty parameters would hide the two that matter."""
    assert repr(CLIENT_KEY) == "Contract(name='client_key')"
    special = Contract(name="m", on_concurrent="reject", retention_s=[60, None], scope=["account"])  # type: ignore[arg-type]
    assert repr(special) == "Contract(name='m', scope=('account',), on_concurrent='reject', retention_s=(60.0, None))"
    assert eval(repr(special), {"Contract": Contract}) == special


def test_contracts_are_values() -> None:
    """Equal ones are one, whatever they were written with; none can be changed after somebody has relied on it."""
    one, other = Contract(name="m", retention_s=60), Contract(name="m", retention_s=60.0)
    assert {one, other} == {one}
    assert one != CLIENT_KEY
    with pytest.raises(AttributeError):
        one.retention_s = 1  # type: ignore[misc]
