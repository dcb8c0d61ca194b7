"""Names of operations: the same in every language and attempt, different for different effects."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path
from typing import Any

import pytest

from pytest_once.reference.identity import (
    Effect,
    IdentityError,
    canonical,
    fingerprint,
    intent_id,
    once_id,
    uuid7,
)

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "once-id-v1.json").read_text(encoding="utf-8"))
REFUND = Effect("refund", bearing=("order", "amount"), incidental=("trace_id", "note"))


def named(vector: dict[str, Any]) -> str:
    return str(vector["name"])


@pytest.mark.parametrize("vector", VECTORS["valid"], ids=named)
def test_a_vector_gives_its_id(vector: dict[str, Any]) -> None:
    """S3.8: other implementations of once-id-v1 give the same."""
    assert once_id(vector["parts"]) == vector["id"]


@pytest.mark.parametrize("vector", VECTORS["invalid"], ids=named)
def test_a_vector_is_refused(vector: dict[str, Any]) -> None:
    """S3.8: what languages write differently has no id."""
    with pytest.raises(IdentityError):
        once_id(vector["parts"])


@pytest.mark.parametrize(
    "parts", [[], "order", ["order", -(2**53)], ["order", float("nan")], ["order", "\ud800"], ["order", b"1"], [["a"]]]
)
def test_what_the_vectors_leave_out_is_refused_too(parts: Any) -> None:
    """S3.8: nothing, text in place of parts, beyond the negative limit, no number, no Unicode, bytes, nesting."""
    with pytest.raises(IdentityError):
        once_id(parts)


def test_the_division_into_parts_counts() -> None:
    """S3.8: a joined text would take two operations for one."""
    assert len({once_id(["a", "bc"]), once_id(["ab", "c"]), once_id(["abc"]), once_id(["a", "b", "c"])}) == 4


def test_tenants_and_parts_are_apart() -> None:
    """S1.4, S4.10: tenant:task:step:action, in which a separator inside a part moves nothing to the next one."""
    assert intent_id("acme", "task-7", "pay", "refund") == "acme:task-7:pay:refund"
    assert intent_id("a", "b:c", "d", "e") != intent_id("a:b", "c", "d", "e")
    assert intent_id("a%3Ab", "c", "d", "e") != intent_id("a:b", "c", "d", "e")
    with pytest.raises(IdentityError, match="without tenant"):
        intent_id("", "task-7", "pay", "refund")


def test_uuid7_carries_its_time_and_is_new_each_time() -> None:
    """S4.10: version and variant as RFC 9562 has them, and ids made later sort later."""
    early = uuid.UUID(uuid7(lambda: 1_700_000_000.0))
    late = uuid.UUID(uuid7(lambda: 1_700_000_000.001))
    assert (early.version, early.variant) == (7, uuid.RFC_4122)
    assert early.int >> 80 == 1_700_000_000_000
    assert str(early) < str(late)
    assert len({uuid7(lambda: 1.0) for _ in range(100)}) == 100


def test_another_amount_is_another_effect_and_another_wording_is_not() -> None:
    """S3.3, S3.2: effect-bearing fields bind, marks of the attempt do not."""
    first = REFUND.binding({"order": "o1", "amount": 5, "trace_id": "t1", "note": "refund"})
    assert REFUND.binding({"amount": 5.0, "order": "o1", "trace_id": "t2"}) == first
    assert REFUND.binding({"order": "o1", "amount": 6}) != first
    assert REFUND.changed({"order": "o1", "amount": 5}, {"order": "o1", "amount": 6, "note": "x"}) == ("amount",)


def test_absent_and_null_are_two_effects() -> None:
    """S3.3: to a provider "no limit given" and "limit: null" may be two requests."""
    assert REFUND.binding({"order": "o1"}) != REFUND.binding({"order": "o1", "amount": None})


def test_a_field_that_nobody_declared_is_refused() -> None:
    """S3.7: the binding is complete, or there is none; a forgotten recipient would pass as a repetition."""
    with pytest.raises(IdentityError, match="does recipient decide what happens"):
        REFUND.binding({"order": "o1", "amount": 5, "recipient": "r"})
    with pytest.raises(IdentityError, match="cannot be bearing and incidental"):
        Effect("refund", bearing=("order",), incidental=("order",))


def test_equal_values_have_one_json_text() -> None:
    """S3.8: order of names, spaces and 5.0 against 5 are no differences; types that JSON lacks are refused."""
    assert canonical({"b": [1.0, None], "a": "é"}) == '{"a":"é","b":[1,null]}'
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert re.fullmatch("[0-9a-f]{64}", fingerprint([]))
    for wrong in ({1: 2}, float("nan"), {1, 2}, b"x"):
        with pytest.raises(IdentityError):
            canonical(wrong)
