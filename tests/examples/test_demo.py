"""`pytest --once-chaos examples`: a stranger's first command."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUGIN = [] if entry_points(group="pytest11", name="once") else ["-p", "pytest_once.plugin"]

CONVICTED = {
    "test_mark_first_loses_the_reservation": "OMISSION",
    "test_an_outbox_alone_reserves_twice": "DUPLICATE",
    "test_a_receipt_committed_after_the_effect_comes_too_late": "DUPLICATE",
    "test_a_receipt_committed_before_the_effect_promises_too_much": "OMISSION",
    "test_a_receipt_forgotten_too_soon_lets_an_old_attempt_act_again": "DUPLICATE",
    "test_a_key_for_every_attempt_refunds_twice": "DUPLICATE",
    "test_a_recovery_that_crashes_refunds_twice": "DUPLICATE",
    "test_a_key_that_dies_with_the_process_refunds_twice": "DUPLICATE",
    "test_a_mail_without_key_is_sent_twice": "DUPLICATE",
    "test_acting_before_deleting_ships_twice": "DUPLICATE",
    "test_a_node_program_that_makes_its_key_when_it_sends": "DUPLICATE",
    "test_a_shell_script_without_a_key": "DUPLICATE",
}
ACQUITTED: tuple[str, ...] = (
    "test_an_outbox_with_receipts_reserves_once",
    "test_a_receipt_that_is_kept_answers_an_old_attempt",
    "test_tenants_are_apart_and_a_key_cannot_change_its_arguments",
    "test_a_key_stored_with_the_task_refunds_once",
    "test_the_provider_can_also_answer_in_process",
    "test_a_key_of_the_order_and_a_look_at_old_ones_refund_once",
    "test_an_inbox_in_the_same_transaction_ships_once",
    "test_a_node_program_that_writes_its_key_down_first",
    "test_a_shell_script_whose_key_names_the_intent",
)
NEEDED = {"node_program": "node", "shell_script": "curl"}


def runs(test: str) -> bool:
    """Whether an example has the program that it needs."""
    return all(shutil.which(program) for kind, program in NEEDED.items() if kind in test)


CONVICTED = {test: verdict for test, verdict in CONVICTED.items() if runs(test)}
ACQUITTED = tuple(filter(runs, ACQUITTED))
ESCALATED = (
    "test_a_mail_with_its_own_key_is_sent_once",
    "test_where_there_are_no_keys_a_person_is_asked",
)
PASSED = len(CONVICTED) + len(ACQUITTED) + len(ESCALATED)


def pytest_run(*arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "fakes")])
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *PLUGIN, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def check_documented(output: str) -> None:
    acquittals, _, convictions = output.partition("convicted, as documented")
    for verdict, names in (("EXACTLY_ONCE", ACQUITTED), ("ESCALATED", ESCALATED)):
        for name in names:
            assert re.search(rf"{verdict}\s+examples/\S+::{name}\b", acquittals), name
    stories = re.split(r"\n_+ (?=examples/)", convictions)[1:]
    told = {}
    for story in stories:
        test = re.match(r"examples/\S+::(\w+)", story)
        said = re.search(r"^([A-Z_]+)  ", story, re.MULTILINE)
        assert test is not None
        assert said is not None
        told[test[1]] = said[1]
        for part in ("broken on purpose: ", "incarnation 1", "confirmed", "replay: pytest ", "explored: exhausted"):
            assert part in story, (test[1], part)
    assert told == CONVICTED


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["crash", "standard"])
def test_the_examples_are_convicted_and_acquitted_as_documented(profile: str) -> None:
    """S1.3, S1.5, S1.8: with each story told; crashes alone are enough for every verdict."""
    ended = pytest_run(f"--once-chaos={profile}", "examples")
    assert ended.returncode == 0, ended.stdout
    assert f"{len(CONVICTED)} convicted, as documented" in ended.stdout
    assert f"{PASSED} passed" in ended.stdout
    check_documented(ended.stdout)


@pytest.mark.slow
def test_the_examples_pass_plainly() -> None:
    """Without --once-chaos nothing crashes, and what is broken looks right."""
    ended = pytest_run("examples")
    assert ended.returncode == 0, ended.stdout
    assert f"{PASSED} passed" in ended.stdout
    assert "convicted" not in ended.stdout


DOCUMENTED = """
import pytest

@pytest.mark.once_effect
@pytest.mark.convicted("DUPLICATE", because="it says so")
def test_rightly_documented(once):
    once.tool(print, atomic=True)("paid")

@pytest.mark.once_effect
@pytest.mark.convicted("OMISSION", because="it says so")
def test_broken_in_another_way(once):
    once.tool(print, atomic=True)("paid")

@pytest.mark.once_effect
@pytest.mark.convicted("DUPLICATE", because="it says so")
def test_not_broken_any_more(once):
    once.provider("pay", contract="client_key").call("pay", {"amount": 1}, key="order_1")

@pytest.mark.once_effect
@pytest.mark.convicted("DUPLICATE", because="it says so")
def test_without_effect(once):
    once.tool(print, counted=False)("paid")
"""


@pytest.mark.slow
def test_another_outcome_than_the_documented_one_fails(tmp_path: Path) -> None:
    """S3.10: an example that is not broken any more, or in another way, must not pass for a conviction."""
    (tmp_path / "conftest.py").write_text((ROOT / "examples" / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(DOCUMENTED)
    ended = pytest_run("--once-chaos=crash", "--strict-markers", f"--rootdir={tmp_path}", str(tmp_path))
    assert ended.returncode == 1, ended.stdout
    assert "3 failed, 1 passed" in ended.stdout
    for documented, found in (("OMISSION", "DUPLICATE"), ("DUPLICATE", "EXACTLY_ONCE"), ("DUPLICATE", "INCONCLUSIVE")):
        assert f"documented as convicted of {documented}, because it says so; but this run says {found}" in ended.stdout
    assert "1 convicted, as documented" in ended.stdout
