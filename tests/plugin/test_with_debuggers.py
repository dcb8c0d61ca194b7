"""--pdb, --trace and breakpoint(): where a debugger opens, and what is said where none can."""

from __future__ import annotations

import subprocess

import pytest

from tests.plugin.conftest import Lab
from tests.plugin.suites import AGENT, BAD, GOOD
from tests.plugin.test_trouble import said


def debug(lab: Lab, commands: str, *args: str) -> str:
    done = subprocess.run(
        lab.command("-q", *args),
        cwd=lab.path,
        env=lab.environment(),
        input=commands,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout


@pytest.mark.slow
def test_the_replayed_incarnation_is_debugged_where_the_second_effect_comes_from(lab: Lab) -> None:
    """One wants to see what the process sees there, with the files that the crash has left."""
    lab.write(AGENT)
    (schedule,) = {
        line.partition("--once-replay=")[2]
        for line in lab.explore("-k", "act_then").stdout.lines
        if line.startswith("  replay:")
    }
    commands = "p 'the table:', connection.execute('SELECT * FROM done').fetchall(), mark_first\nn\nc\n"
    output = debug(lab, commands, "--pdb", "test_it.py::test_act_then_mark", f"--once-replay={schedule}")
    assert "incarnation 2 is lived in this process, with the real clock, on what those before it left" in output
    assert "test_it.py(9)refund()\n-> provider.call(" in output
    assert "('the table:', [], False)" in output, "the first one never committed"
    assert "test_it.py(10)refund()\n-> connection.execute(" in output
    assert output.count("(Pdb)") == 3, "pytest's own debugger opened too"
    assert "1 failed" in output
    assert "FAILED test_it.py::test_act_then_mark - DUPLICATE pay refund" in output


@pytest.mark.slow
def test_while_exploring_the_debugger_opens_for_the_first_violation_and_may_be_left(lab: Lab) -> None:
    """The same without copying an id; q ends pytest, as it does everywhere."""
    lab.write(AGENT + BAD)
    output = debug(lab, "p 'it', mark_first\nq\n", "--pdb", "--once-chaos=crash")
    assert "OMISSION" not in output
    assert "('it', False)" in output
    assert "Exit: Quitting debugger" in output
    assert "DUPLICATE" in output


@pytest.mark.slow
def test_what_the_last_life_raises_is_looked_at_where_it_is_raised(lab: Lab) -> None:
    """A recovery that cannot go on has a traceback; nobody needs a breakpoint there."""
    lab.write(
        """
import pytest

@pytest.mark.once_effect(soft_faults=0)
def test_claim(once):
    claim = once.path / "claim"
    if claim.exists():
        raise RuntimeError("somebody else has it")
    claim.write_text("mine")
    once.provider("pay", contract="client_key").call("refund", {"order": "o1"}, key="o1")
    claim.unlink()

def test_next():
    assert 1 == 2
"""
    )
    output = debug(
        lab, "p 'claimed:', claim.read_text()\nc\np 'pytest has it back'\nc\n", "--pdb", "--once-chaos=crash"
    )
    assert "STUCK" in output
    assert '-> raise RuntimeError("somebody else has it")' in output
    assert "('claimed:', 'mine')" in output or "('claimed:', '')" in output
    assert "It raised RuntimeError: somebody else has it" in output
    assert "'pytest has it back'" in output
    assert "entering PDB" in output


def test_breakpoint_and_trace_say_what_to_do_instead(lab: Lab) -> None:
    """A prompt that nobody can see looks like a hang."""
    lab.write(GOOD + "    breakpoint()\n")
    assert "INCONCLUSIVE breakpoint() is reached in an incarnation, which has no terminal" in said(lab.explore())
    lab.write(GOOD)
    assert "INCONCLUSIVE --trace has nobody to trace" in said(lab.explore("--trace"))


def test_without_a_violation_no_debugger_opens_and_the_way_to_one_is_told(lab: Lab) -> None:
    """The fault-free run fails: pytest's debugger would stand in the engine."""
    lab.write(GOOD + "    assert 1 == 2\n")
    text = said(lab.explore("--pdb"))
    assert "No process is left to look at" in text and "--once-isolation=none --pdb" in text
    assert "entering PDB" not in text
