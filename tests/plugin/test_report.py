"""What the terminal says: complete, in 80 columns, in ASCII, and without anybody's secrets."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree

import pytest

from tests.plugin.conftest import Lab
from tests.plugin.suites import AGENT, BAD, GOOD


def reported(result: pytest.RunResult) -> list[str]:
    """The lines that are ours: the failures, and the summary's section."""
    lines = result.stdout.lines
    failures = next((n for n, line in enumerate(lines) if re.fullmatch(r"=+ FAILURES =+", line)), None)
    section = next(n for n, line in enumerate(lines) if re.fullmatch(r"=+ once-chaos =+", line))
    end = next((n for n, line in enumerate(lines) if "short test summary info" in line), len(lines) - 1)
    return lines[(section if failures is None else failures) + 1 : end]


def test_a_conviction_says_all_that_one_needs(lab: Lab) -> None:
    """What happened, where, why it matters, how to fix it, how to see it again, and how far the search went."""
    lab.write(AGENT)
    result = lab.run("--once-chaos", "-k", "act_then_mark")
    result.assert_outcomes(failed=1, deselected=1)
    result.stdout.fnmatch_lines(
        [
            "DUPLICATE  order=o1 (pay refund): 2 effects, 1 intended",
            "  The effect happened more often than intended: a customer sees it twice.",
            "",
            "  incarnation 1",
            "    sqlite  agent.db CREATE TABLE done  [[]test_it.py:6[]]",
            "    call    pay refund  [[]test_it.py:9[]]",
            "      => effect number 1: order=o1 (pay refund)",
            "    X killed (SIGKILL) before agent.db COMMIT (done)  [[]test_it.py:11[]]",
            "  incarnation 2",
            "*",
            "      => effect number 2: order=o1 (pay refund)",
            "*",
            "  confirmed by SIGKILL",
            "  usual remedy: *",
            "  replay: pytest test_it.py::test_act_then_mark --once-replay=x@*/*",
            "what one fault in the fault-free run leads to (nothing fails afterwards):",
            "  before *X*",
            "  2 pay refund *once*",
            "  3 agent.db COMMIT* 2x*",
            "  4 the end *once*",
            "  X=killed*",
            "explored: exhausted for any number of crashes, no soft faults; * states, *",
            "  *runs, * crash points, crash diameter 1",
            "assumed: a crash is the sudden death of the process (kill -9), not a power loss;",
            "*every request acts*",
        ]
    )


def test_an_omission_and_a_soft_fault_are_told_too(lab: Lab) -> None:
    """The fault stands at the line where it struck, in words."""
    lab.write(
        """
import pytest

@pytest.mark.once_effect
def test_paid(once):
    try:
        once.provider("pay", contract="client_key").call("refund", {"order": "o1"}, key="o1")
    except OSError:
        pass
"""
    )
    result = lab.run("--once-chaos")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "OMISSION  order=o1 (pay refund): 0 effects, 1 intended",
            "  The process says that it is done, and the effect never happens.",
            "    call    pay refund  [[]test_it.py:6[]]",
            "      ! *",
            "    returned: done",
            "  confirmed: replayed from nothing (no crash is needed for this one)",
            "  replay: pytest test_it.py::test_paid --once-replay=*",
            "*0x*",
        ]
    )


@pytest.mark.parametrize("suite", [GOOD, BAD, AGENT], ids=["good", "bad", "agent"])
def test_everything_fits_80_columns_and_is_ascii(lab: Lab, suite: str) -> None:
    """CI logs wrap or cut what is wider, and some consoles show nothing but ASCII. Commands must stay in one piece."""
    lab.write(suite)
    lines = reported(lab.run("--once-chaos"))
    assert lines
    for line in lines:
        assert line.isascii(), line
        assert len(line) <= 80 or re.match(r"  (replay|also): ", line), line


def test_a_name_with_brackets_or_letters_of_the_world_is_shown_as_it_is(lab: Lab) -> None:
    """Names come from the user's code; the table must not read markup or emoji into them."""
    lab.write(BAD.replace('"refund"', '":smile: [red]x[/red] übung"'))
    result = lab.explore()
    result.assert_outcomes(failed=1)
    assert "1 pay :smile: [red]x[/red] übung" in result.stdout.str()


def test_a_passing_test_takes_one_line_and_the_assumptions_are_told_once(lab: Lab) -> None:
    """A suite of fifty such tests must stay readable; what all of them assume need not be said fifty times."""
    lab.write(GOOD + GOOD.replace("test_good", "test_other") + GOOD.replace("once_effect", "once_effect(redeliver=0)"))
    result = lab.explore()
    lines = reported(result)
    passing = [n for n, line in enumerate(lines) if line.startswith("EXACTLY_ONCE")]
    assert [n - passing[0] for n in passing] == list(range(len(passing)))
    for n in passing:
        assert re.fullmatch(r"EXACTLY_ONCE  \S+: exhausted, \d+ states, \d+ crash points", lines[n]), lines[n]
    text = " ".join(" ".join(lines).split())
    assert text.count("a crash is the sudden death") == 1
    assert text.count("exhausted means: any number of crashes, no soft faults;") == 1


def test_assumptions_that_are_not_common_to_all_stay_with_their_test(lab: Lab) -> None:
    """What one provider promises says nothing about a test that uses another."""
    lab.write(
        GOOD
        + """
@pytest.mark.once_effect(ignore=("notes.*",), soft_faults=1, faults=("duplicate",))
def test_tool(once):
    done = once.path / "done"
    if not done.exists():
        once.provider("mail", contract="client_key").call("send", {"to": "o2"}, key="o2")
        done.write_text("")
"""
    )
    result = lab.explore()
    result.assert_outcomes(passed=2)
    lines = reported(result)
    good, tool = (n for n, line in enumerate(lines) if line.startswith("EXACTLY_ONCE"))
    end = next(n for n, line in enumerate(lines) if line.startswith("exhausted means"))
    of_good, of_tool = (" ".join(" ".join(part).split()) for part in (lines[good:tool], lines[tool:end]))
    assert "pay: client_key" in of_good
    assert "any number of crashes, no soft faults" in of_good
    assert "mail: client_key" in of_tool
    assert "up to 1 soft fault per incarnation (duplicate)" in of_tool
    assert "ignore= names nothing with a value to exchange (a slip of the pen?): notes.*" in of_tool
    assert "client_key" not in " ".join(lines[end:])


def test_an_escalation_that_is_allowed_passes_under_its_own_name(lab: Lab) -> None:
    """It is safe, not complete: the summary must not call it exactly once."""
    lab.write(
        """
import pytest

class Unknown(Exception):
    pass

@pytest.mark.once_effect(blocked=(Unknown,))
def test_paid(once):
    begun, done = once.path / "begun", once.path / "done"
    if done.exists():
        return
    if begun.exists():
        raise Unknown
    begun.write_text("")
    once.provider("pay").call("refund", {"order": "o1"})
    done.write_text("")
"""
    )
    result = lab.explore()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["ESCALATED  test_it.py::test_paid: *"])


def test_the_summary_says_when_nothing_was_explored(lab: Lab) -> None:
    """A forgotten marker, or a -k that hits nothing, would look like a proof."""
    lab.write("def test_plain(): pass\n")
    result = lab.explore()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["=* once-chaos *=", "no test marked once_effect was explored"])


def test_results_are_in_the_junit_file(lab: Lab) -> None:
    """CI systems read that file, not the terminal."""
    lab.write(GOOD + BAD)
    lab.explore("--junit-xml=junit.xml", "-o", "junit_family=xunit1")
    cases = {case.get("name"): case for case in ElementTree.parse(lab.path / "junit.xml").iter("testcase")}
    verdicts = {}
    for name, case in cases.items():
        (value,) = [found.get("value", "") for found in case.iter("property") if found.get("name") == "once"]
        verdicts[name] = json.loads(value)["verdict"]
    assert verdicts == {"test_good": "EXACTLY_ONCE", "test_bad": "DUPLICATE"}


def test_secrets_that_the_client_sends_are_neither_reported_nor_stored(lab: Lab) -> None:
    """Reports go to CI logs and tickets, and worlds are kept for inspection."""
    lab.write(
        """
import httpx
import pytest

HEADERS = {"Authorization": "Bearer s3cret-token", "Cookie": "session=s3cret-cookie", "X-Api-Key": "s3cret-api"}

@pytest.mark.once_effect(soft_faults=1, faults=("lost-response", "error-after"))
def test_paid(once):
    pay = once.provider("pay")
    with httpx.Client(headers=HEADERS, verify=False, trust_env=False) as client:
        assert client.post(pay.url + "/refunds", json={"order": "o1"}, auth=None).status_code == 200
    assert b"s3cret" not in b"".join(path.read_bytes() for path in once.path.parent.glob("ledger*"))
"""
    )
    result = lab.explore("--junit-xml=junit.xml")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["DUPLICATE  order=o1*"])
    assert "s3cret" not in result.stdout.str()
    assert "s3cret" not in (lab.path / "junit.xml").read_text()
