"""A contract is data: it is checked when made, stored as JSON, and says what it assumes."""

from __future__ import annotations

from typing import Any

import pytest

from once_fakes import CLIENT_KEY, NONE, Contract, contract_named, contracts


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"dedup": "magic"}, "dedup must be one of 'none', 'client_key', not 'magic'"),
        ({"on_mismatch": "x"}, "on_mismatch must be one of 'error', 'replay', 'execute'"),
        ({"on_missing_key": "x"}, "on_missing_key must be one of 'execute', 'error'"),
        ({"mismatch_status": 200}, "mismatch_status must be an error status from 400 to 599, not 200"),
        ({"missing_key_status": True}, "missing_key_status must be an error status"),
        ({"key_header": ""}, "key_header must be a text that is not empty"),
        ({"dedup": "none", "on_missing_key": "error"}, "needs dedup='client_key'"),
    ],
)
def test_a_wrong_value_is_refused_with_the_valid_ones(wrong: dict[str, Any], message: str) -> None:
    """A misspelt promise must not silently become another one."""
    with pytest.raises(ValueError, match=message):
        Contract(**{"name": "mine", **wrong})


def test_a_contract_survives_json() -> None:
    """The server reads contracts from the ledger and must apply the same one."""
    contract = Contract(name="mine", on_mismatch="execute", key_header="X-Key", mismatch_status=409)
    assert Contract.from_json(contract.to_json()) == contract


@pytest.mark.parametrize("text", ["[]", "{}", '{"name":"a","retention":"1h"}', "nonsense"])
def test_json_that_is_no_contract_is_refused(text: str) -> None:
    """A parameter we do not implement must not be ignored."""
    with pytest.raises(ValueError):  # noqa: PT011 - the JSON decoder's own message is fine too
        Contract.from_json(text)


def test_contracts_are_found_by_name() -> None:
    """Names come from the command line and ini files, where a typo needs the list of names."""
    assert contract_named("client_key") is contracts.client_key is CLIENT_KEY
    assert contract_named("none") is contracts.none is NONE
    with pytest.raises(ValueError, match="no contract 'stripe'; valid names are none, client_key"):
        contract_named("stripe")


@pytest.mark.parametrize(
    ("contract", "said"),
    [
        (NONE, "none: every request acts"),
        (CLIENT_KEY, "receipts never expire; the same key with another payload is refused with 422"),
        (Contract(name="r", on_mismatch="replay"), "another payload gets the first reply again"),
        (Contract(name="e", on_mismatch="execute"), "another payload acts"),
        (Contract(name="m", on_missing_key="error"), "without Idempotency-Key is refused with 400"),
    ],
)
def test_assumptions_say_what_the_contract_does(contract: Contract, said: str) -> None:
    """A report must print under which promises its verdict holds."""
    assert said in "\n".join(contract.assumptions())
