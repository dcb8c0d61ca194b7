"""Bodies that hang, die or stray: a message with the place and the remedy, and never a pass."""

from __future__ import annotations

import os
import re
import textwrap

import pytest

from tests.plugin.conftest import Lab
from tests.plugin.suites import GOOD


def said(result: pytest.RunResult) -> str:
    """All that was printed, with every run of white space as one space."""
    return " ".join(result.stdout.str().split())


def body(lines: str, *, marker: str = "once_effect", imports: str = "import pytest, os, signal, threading") -> str:
    return f"{imports}\n@pytest.mark.{marker}\ndef test_it(once, tmp_path):\n" + textwrap.indent(
        textwrap.dedent(lines).strip(), "    "
    )


CALL = 'once.provider("pay", contract="client_key").call("refund", {"order": "o1"}, key="o1")'


def test_a_body_that_hangs_is_told_with_the_place_where_it_hung(lab: Lab) -> None:
    """A time-out without a place leaves one with a debugger and a hundred frames."""
    lab.write(body(f"{CALL}\nthreading.Event().wait()  # for ever"))
    result = lab.explore("--once-timeout=1s")
    result.assert_outcomes(failed=1)
    text = said(result)
    assert "INCONCLUSIVE an incarnation was silent for 1s after pay refund at test_it.py:4" in text
    assert re.search(r'File "[^"]*test_it\.py", line 5 in test_it', text), text
    assert "Likely causes: a wait without a time-out" in text


@pytest.mark.slow
def test_a_body_that_hangs_only_after_a_crash_is_no_pass(lab: Lab) -> None:
    """The fault-free run is quick; the recovery waits for somebody who is dead."""
    lab.write(
        body(
            f"""
            if (tmp_path / "begun").exists() and not (tmp_path / "done").exists():
                threading.Event().wait()
            (tmp_path / "begun").write_text("yes")
            {CALL}
            (tmp_path / "done").write_text("yes")
            """
        )
    )
    result = lab.explore("--once-timeout=500ms")
    result.assert_outcomes(failed=1)
    assert "INCONCLUSIVE" in said(result)
    assert "an incarnation was silent for 0.5s" in said(result)


@pytest.mark.parametrize(
    ("line", "how"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "signal SIGKILL"),
        ("os._exit(3)", "exit status 3"),
        ("os.abort()", "signal SIGABRT"),
    ],
)
def test_a_body_that_ends_its_process_is_told_how_and_where(lab: Lab, line: str, how: str) -> None:
    """Nothing is known of how the call went; taking it for a return would be a guess."""
    lab.write(body(f"{CALL}\n{line}"))
    result = lab.explore()
    result.assert_outcomes(failed=1)
    assert f"INCONCLUSIVE an incarnation ended by itself ({how}) after pay refund at test_it.py:4" in said(result)


def test_a_child_killed_by_somebody_else_makes_the_answer_unknown(lab: Lab) -> None:
    """The kernel's out-of-memory killer strikes once, and not again when the schedule is confirmed."""
    lab.write(
        body(
            f"""
            trap = {str(lab.path / "lives.txt")!r}
            with open(trap, "a") as file:
                file.write("x")
            if os.path.getsize(trap) == 5:  # past the recording runs
                os.kill(os.getpid(), signal.SIGKILL)
            once.boundary("one")
            assert {CALL}.status == 200
            """,
            marker='once_effect(allow="file:*/lives.txt")',
        )
    )
    result = lab.explore()
    result.assert_outcomes(failed=1)
    assert "INCONCLUSIVE" in said(result)
    assert "ended by itself (signal SIGKILL)" in said(result)


def test_a_request_to_a_server_that_is_no_fake_is_stopped(lab: Lab) -> None:
    """Exploring would pay a real customer as many times as there are crash points."""
    lab.write(
        body(
            f"""
            {CALL}
            httpx.post("http://127.0.0.1:9/refunds", json={{}})
            """,
            imports="import httpx, pytest",
        )
    )
    result = lab.explore()
    result.assert_outcomes(failed=1)
    text = said(result)
    assert "ESCAPED_EFFECT POST http://127.0.0.1:9/refunds would reach a server that no fake stands for" in text
    assert "(test_it.py:5)" in text
    assert "once.provider(...).url" in text


def test_a_body_that_is_different_each_time_is_not_judged(lab: Lab) -> None:
    """Two states could never be taken for the same, and no schedule would replay."""
    lab.write(
        body(
            f"""
            counter = {str(lab.path / "lives.txt")!r}
            with open(counter, "a") as file:
                file.write("x")
            for n in range(os.path.getsize(counter)):
                once.boundary(f"step {{n}}")
            {CALL}
            """,
            marker='once_effect(allow="file:*/lives.txt")',
        )
    )
    result = lab.explore()
    result.assert_outcomes(failed=1)
    assert "NONDETERMINISTIC the fault-free run was repeated and took another way" in said(result)


def test_a_body_that_asks_how_often_it_was_restarted_is_not_judged(lab: Lab) -> None:
    """No real process knows; with it no search would close."""
    lab.write(body(f"print(once.incarnation)\n{CALL}"))
    result = lab.explore()
    result.assert_outcomes(failed=1)
    assert "the body reads once.incarnation" in said(result)


def test_a_search_that_a_limit_stops_is_no_pass_and_names_the_limit(lab: Lab) -> None:
    """A bound that is not told is a proof that is not one."""
    lab.write(
        body(
            f"""
            for n in range(5):
                with open(tmp_path / f"step{{n}}", "w") as file:
                    file.write("x")
            {CALL}
            """
        )
    )
    result = lab.explore("--once-max-states=3")
    result.assert_outcomes(failed=1)
    text = said(result)
    assert "bounded by max-states=3" in text
    assert "INCONCLUSIVE" in text
    assert "Raise the limit (--once-max-states, --once-deadline)" in text
    result.stdout.fnmatch_lines(["1 without an answer"])


def test_a_platform_without_fork_says_what_to_do(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows the plugin loads, and must not pass anything."""
    monkeypatch.delattr("os.fork")
    lab.write(GOOD)
    result = lab.explore()
    result.assert_outcomes(failed=1)
    assert "INCONCLUSIVE exploring needs os.fork(), which this platform does not have" in said(result)


def test_nothing_is_left_behind_by_any_of_them(lab: Lab) -> None:
    """A hundred hung tests must not fill the memory-backed directory."""
    from pytest_once.world import memory_backed_directory

    scratch = memory_backed_directory()
    if scratch is None:
        pytest.skip("no memory-backed directory here")
    # A state machine of another test keeps its world until this process ends.
    before = set(scratch.glob(f"pytest-once-{os.getpid()}-*"))
    lab.write(body(f"{CALL}\nos._exit(3)") + "\n" + GOOD)
    lab.explore().assert_outcomes(failed=1, passed=1)
    assert set(scratch.glob(f"pytest-once-{os.getpid()}-*")) <= before
