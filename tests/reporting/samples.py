"""What the reports are made of in these tests: a suite with every kind of result, and documents made by hand."""

from __future__ import annotations

from typing import Any

from pytest_once.reporting.document import without_answer
from tests.plugin.suites import AGENT, BAD, GOOD

SUITE = f"""
{GOOD}
{BAD}
{AGENT}
@pytest.mark.once_effect(max_states=1)
def test_bounded(once, tmp_path):
    for n in range(3):
        (tmp_path / f"step{{n}}").write_text("")
    once.provider("pay", contract="client_key").call("refund", {{"order": "o1"}}, key="o1")

@pytest.mark.once_effect
def test_without_effect(once):
    print("<script>alert(1)</script>")
    once.boundary("&<b>here</b>")

@pytest.mark.once_effect
def test_broken_fixture(once, absent):
    pass

@pytest.mark.once_effect(soft_faults=1, faults=("lost-response",), redeliver=0)
def test_lost_answer(once):
    pay = once.provider("pay", contract="client_key")
    try:
        pay.call("refund", {{"order": "o1"}}, key="first")
    except OSError:
        pay.call("refund", {{"order": "o1"}}, key="second")

def test_forgotten(once):
    pass

def test_plain():
    pass
"""

VERDICTS = {
    "test_good": "EXACTLY_ONCE",
    "test_bad": "DUPLICATE",
    "test_act_then_mark": "DUPLICATE",
    "test_mark_then_act": "OMISSION",
    "test_lost_answer": "DUPLICATE",
    "test_bounded": "INCONCLUSIVE",
    "test_without_effect": "INCONCLUSIVE",
    "test_broken_fixture": "INCONCLUSIVE",
}
"""What each marked test of SUITE comes to."""


def unanswered(name: str, **changes: Any) -> dict[str, Any]:
    """A test of a document, without an answer unless the changes say otherwise."""
    return {**without_answer(name, file="test_it.py", line=7, problem="it could not begin"), **changes}


def site(line: int, file: str = "agent.py") -> dict[str, Any]:
    return {"file": file, "line": line, "function": "pay", "text": "pay()"}


KEY = {"provider": "pay", "operation": "POST /refunds", "name": "order=o1"}


def violated(name: str, **changes: Any) -> dict[str, Any]:
    """A test with one violation: a request whose answer is lost is sent again."""
    step = {
        **{"kind": "http", "target": "pay POST /refunds", "provider": "pay", "site": site(12), "chosen": None},
        **{"fault": {"name": "lost-response", "told": "the response is lost"}, "arrived": [], "arrived_effects": []},
        "effects": [{"key": KEY, "count": 2}],
    }
    life = {
        **{"incarnation": 1, "between": False, "after_s": 0.0, "steps": [step], "ending": "returned: done"},
        **{"killed": False, "site": None, "effects": []},
    }
    violation = {
        **{"verdict": "DUPLICATE", "key": KEY, "expected": 1, "actual": 2, "detail": "2 effects for one intent"},
        **{"meaning": "", "remedy": "", "confirmed": True, "crashes": 0, "soft_faults": 1, "schedule": "lr@abcdef"},
        **{"replay": "pytest --once-replay=lr@abcdef", "variants": [], "variants_unlisted": 0, "story": [life]},
        "ledger": {"providers": [], "arrivals": [], "effects": [], "told": []},
    }
    headline = "DUPLICATE pay POST /refunds: 2 effects, 1 intended"
    told = {"verdict": "DUPLICATE", "coverage": "exhausted", "headline": headline, "problem": "", "text": headline}
    return unanswered(name, **{**told, "violations": [violation], **changes})


def chain(states: int) -> dict[str, Any]:
    """A graph in which each state has three followers, one crash further on."""
    numbers = range(states)
    return {
        "states": [
            {
                **{"number": n, "crashes": n.bit_length() // 2, "faults": 0, "deliveries": 0, "schedule": f"x@{n:06x}"},
                **{"effects": [], "onward": "complete", "onward_state": None},
            }
            for n in numbers
        ],
        "ways": [
            {"source": n // 4, "target": n, "step": "x@abcdef", "told": "killed before the end", "shortest": True}
            for n in numbers[1:]
        ],
        "wrong": [
            {
                **{"source": states - 1, "verdict": "DUPLICATE", "key": KEY, "step": ".", "told": "undisturbed"},
                "lives": 1,
            }
        ],
        "states_unlisted": 0,
    }
