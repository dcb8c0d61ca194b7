"""A marked test without --once-chaos: one run, and its effects are counted all the same."""

from __future__ import annotations

import os

import pytest

from tests.plugin.conftest import Lab
from tests.plugin.suites import GOOD

TWICE = """
import pytest

@pytest.mark.once_effect(MARKER)
def test_paid(once):
    pay = once.provider("pay")
    for _ in range(CALLS):
        pay.call("refund", {"order": "o1"})
    pay.call("note", {"text": "hello"})
"""


def suite(calls: int, marker: str = "") -> str:
    return TWICE.replace("CALLS", str(calls)).replace("MARKER", marker)


def test_the_body_runs_exactly_once_and_in_this_process(lab: Lab) -> None:
    """The daily run must stay as quick, and as easy to debug, as without the marker."""
    lab.write(
        GOOD + f"    import os\n    with open({str(lab.path / 'runs')!r}, 'a') as f: f.write(f'{{os.getpid()}} ')\n"
    )
    lab.run().assert_outcomes(passed=1)
    assert (lab.path / "runs").read_text().split() == [str(os.getpid())]


@pytest.mark.parametrize(
    ("calls", "marker", "message"),
    [
        (2, "keys={'o1': 1}", "DUPLICATE  o1 (pay refund): 2 effects, 1 intended"),
        (2, "key='o1'", "DUPLICATE  o1 (pay refund): 2 effects, 1 intended"),
        (1, "keys={'o1': 2}", "OMISSION  o1 (pay refund): 1 effects, 2 intended"),
        (0, "keys={'o1': 1}", "OMISSION  o1: 0 effects, 1 intended"),
        (1, "keys={'o1': 0}", "DUPLICATE  o1 (pay refund): 1 effects, 0 intended"),
    ],
)
def test_effects_that_differ_from_the_keys_fail_a_plain_run(lab: Lab, calls: int, marker: str, message: str) -> None:
    """What is wrong without any crash should not wait for the exploration."""
    lab.write(suite(calls, marker))
    result = lab.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([message, "*no crash and no fault was needed*", "*keys=, once.intend*"])
    result.stdout.fnmatch_lines(["  1 x text=hello (pay note)"])


@pytest.mark.parametrize("marker", ["keys={'o1': 2}", "", "key='o1'"], ids=["two", "unsaid", "one"])
def test_effects_that_are_intended_pass(lab: Lab, marker: str) -> None:
    """Two can be right; without keys= the plain run itself says how many."""
    lab.write(suite(1 if marker == "key='o1'" else 2, marker))
    lab.run().assert_outcomes(passed=1)


@pytest.mark.parametrize(("said", "outcome"), [(1, "failed"), (2, "passed")])
def test_once_intend_says_it_in_the_body(lab: Lab, said: int, outcome: str) -> None:
    """Keys that are made in the test can be declared there."""
    lab.write(suite(2).replace("    pay = once", f"    once.intend('o1', {said})\n    pay = once"))
    lab.run().assert_outcomes(**{outcome: 1})


def test_a_counted_tool_and_a_counted_table_are_counted_plainly(lab: Lab) -> None:
    """Providers are not the only place where effects happen."""
    lab.write(
        """
import sqlite3
import pytest

@pytest.mark.once_effect(keys={"o1": 1})
def test_tool(once):
    send = once.tool(lambda order: None, name="send", key=lambda order: order)
    send("o1")
    send("o1")

@pytest.mark.once_effect(keys={"o1": 1})
def test_table(once, tmp_path):
    connection = sqlite3.connect(tmp_path / "shop.db")
    connection.execute("CREATE TABLE paid (id TEXT)")
    connection.executemany("INSERT INTO paid VALUES (?)", [("o1",), ("o1",)])
    connection.commit()
    connection.close()
    once.count(tmp_path / "shop.db", "SELECT id, COUNT(*) FROM paid GROUP BY id")
"""
    )
    result = lab.run()
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["DUPLICATE  o1 (send): 2 effects, 1 intended"])
    result.stdout.fnmatch_lines(["DUPLICATE  o1 (shop): 2 effects, 1 intended"])


def test_the_body_s_own_failure_comes_first(lab: Lab) -> None:
    """An assertion that fails is what one wants to see, as always."""
    lab.write(suite(2, "keys={'o1': 1}") + "    assert 1 == 2\n")
    result = lab.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E   *assert 1 == 2"])
    result.stdout.no_fnmatch_line("DUPLICATE*")


def test_httpx_reaches_the_provider_in_a_plain_run(lab: Lab) -> None:
    """Over the loopback server, and in process through respx, into the same ledger."""
    lab.write(
        """
import httpx
import pytest

@pytest.mark.once_effect(keys={"o1": 2, "o2": 1})
def test_paid(once):
    pay = once.provider("pay", contract="client_key")
    for _ in range(2):
        httpx.post(f"{pay.url}/refunds", json={"order": "o1"}, headers={"Idempotency-Key": "o1"}, trust_env=False)
    with pay.router:
        httpx.post(f"{pay.base_url}/refunds", json={"order": "o2"})
"""
    )
    result = lab.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["OMISSION  o1 (pay POST /refunds): 1 effects, 2 intended", "  1 x o2 (pay POST*"])


def test_an_unmarked_test_may_use_the_fixture_and_is_not_judged(lab: Lab) -> None:
    """The fake providers are useful by themselves."""
    lab.write("def test_free(once):\n    assert once.provider('pay').call('a', {}).status == 200\n")
    lab.run().assert_outcomes(passed=1)
