"""pytest-timeout, deadlines and Ctrl-C: the exploration ends, says what to do, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.plugin.conftest import Lab
from tests.plugin.test_interrupt import descendants, eventually, scratch_of
from tests.plugin.test_trouble import body, said

CALL = 'once.provider("pay", contract="client_key").call("refund", {"order": "o1"}, key="o1")'

ENDLESS = f"""
with open(PIDS, "a") as file:
    file.write(f"{{os.getpid()}} ")
for n in range(300):
    once.boundary(f"step {{n}}")
{CALL}
"""


def gone(pids: Path) -> bool:
    for pid in map(int, pids.read_text().split()):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            continue
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "line"),
    [("signal", "[once.boundary('on and on'), *range(3_000_000)]"), ("thread", "threading.Event().wait()")],
    ids=["signal-long", "thread-hung"],
)
def test_a_time_out_of_pytest_timeout_says_what_to_do(lab: Lab, method: str, line: str) -> None:
    """It strikes in the middle of the engine, whose frames mean nothing to anybody."""
    pytest.importorskip("pytest_timeout")
    pids = lab.path / "pids"
    lab.write(
        "import pytest_once.exploration, pytest_once.session, once_fakes.provider, pytest_once.reporting.terminal\n"
        + body(
            ENDLESS.replace("PIDS", repr(str(pids))) + f"while True: {line}\n",
            marker="once_effect(allow='file:*/pids')",
        )
    )
    result = lab.run_apart("--once-chaos=crash", "--timeout=1.5", f"--timeout-method={method}")
    assert result.returncode != pytest.ExitCode.OK
    assert eventually(lambda: gone(pids), within_s=10), "incarnations survived"
    if method == "thread":
        return  # it prints its stacks and ends the whole of pytest at once
    text = " ".join(result.stdout.split())
    assert "INCONCLUSIVE Timeout" in text and "1.5s" in text and "That stopped the exploration" in text
    assert "@pytest.mark.timeout" in text and "--once-deadline, now 300s" in text and "--once-timeout, now 10s" in text
    assert "exploration.py" not in text.partition("Captured stdout")[0]
    assert "1 without an answer" in text


def test_a_deadline_ends_a_long_life_in_its_middle(lab: Lab) -> None:
    """A limit that is looked at only between lives is none for a life that goes on."""
    lab.write(
        body(
            f"""
            if (once.path / "begun").exists():
                for n in range(350):
                    (once.path / f"step{{n}}").write_text("x")
                    select.select([], [], [], 0.02)  # real time, unlike sleep
            (once.path / "begun").write_text("yes")
            {CALL}
            """,
            marker="once_effect(deadline='3s', soft_faults=0)",
            imports="import pytest, select",
        )
    )
    result = lab.explore()
    result.assert_outcomes(failed=1)
    text = said(result)
    assert "bounded by deadline=3s" in text
    assert "stopped after" not in text, "it was lived to its end"


def test_a_deadline_that_passes_while_recording_says_so(lab: Lab) -> None:
    """Nothing was explored; the answer must not look as if something had been."""
    lab.write(body(f"for n in range(200): once.boundary(f'step {{n}}')\n{CALL}"))
    result = lab.explore("--once-deadline=1ms")
    result.assert_outcomes(failed=1)
    assert "INCONCLUSIVE deadline=0.001s passed before the fault-free run had been recorded" in said(result)


@pytest.mark.slow
def test_ctrl_c_with_workers_leaves_no_process_no_file_and_no_database(lab: Lab) -> None:
    """xdist's workers are killed, not asked."""
    pytest.importorskip("xdist")
    pids = lab.path / "pids"
    lab.write(body(ENDLESS.replace("PIDS", repr(str(pids))), marker="once_effect(allow='file:*/pids')"))
    process = subprocess.Popen(
        lab.command("--once-chaos=crash", "-n", "1", "--once-database=kept"),
        cwd=lab.path,
        env=lab.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        assert eventually(lambda: pids.exists() and pids.stat().st_size >= 20, within_s=60), "it never came to explore"
        started = descendants(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=30)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert eventually(lambda: gone(pids), within_s=10), "incarnations survived"
    assert eventually(lambda: not any(map(scratch_of, started)), within_s=10), "scratch directories are left"
    assert not (lab.path / "kept").exists()
