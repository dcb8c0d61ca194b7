"""Wrong use of the fixture: each says what was given and what is meant, and is never a pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from pytest_once import Once, Verdict, explore

WRONG: dict[str, tuple[Callable[[Any], object], str]] = {
    "contract": (lambda once: once.provider("pay", contract=None), "give a Contract or the name of one"),
    "contract name": (lambda once: once.provider("pay", contract="client-key"), "client_key"),
    "provider name": (lambda once: once.provider(5), "name is a text"),
    "key field": (lambda once: once.provider("pay", key_field=5), "key_field is a text"),
    "intent": (lambda once: once.intend("o1", "x"), "the intended count is 0 or more"),
    "empty intent": (lambda once: once.intend(""), "key is a text that is not empty"),
    "boundary": (lambda once: once.boundary(5), "name is a text that is not empty"),
    "caller": (lambda once: once.caller("k", 5), "the second argument is the function to call"),
    "tool": (lambda once: once.tool(5), "something callable"),
    "claim": (lambda once: once.claim("perhaps"), "done, failed, unknown, in_progress"),
    "count": (lambda once: once.count("/nowhere/x.db", "SELECT 1, 1"), "is in no tracked directory"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_says_what_is_meant(name: str) -> None:
    """A traceback of ours would send the reader into our code instead of theirs."""
    call, said = WRONG[name]

    def body(once: Once) -> None:
        call(cast(Any, once))
        once.tool(lambda: None, name="act", key="k")()

    report = explore(body, profile="crash")
    assert report.verdict is Verdict.INCONCLUSIVE
    assert not report.passed
    assert said in report.problem
