"""The audit in a pytest run: pytest's own files are no effect of the test, and the marker allows targets by name."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Lab

PAY = 'once.provider("pay", contract="client_key").call("refund", {"order": "o1"}, key="o1")'


def test_what_pytest_and_its_plugins_write_is_no_escape(lab: Lab) -> None:
    """Capture, cache, temporary directories, Hypothesis' database, a log on stderr: none is the body's doing."""
    lab.write(
        f"""
import logging, os, sys
import pytest
from hypothesis import given, settings, strategies as st

@pytest.fixture
def made(tmp_path_factory, request):
    request.config.cache.set("once/test", 1)
    return tmp_path_factory.mktemp("made")

@pytest.mark.once_effect
def test_fixtures(once, tmp_path, tmpdir, capfd, caplog, recwarn, monkeypatch, made):
    monkeypatch.setenv("A", "b")
    monkeypatch.chdir(tmp_path)
    print("printed")
    logging.getLogger("x").error("logged")
    os.write(1, b"raw")
    with open("relative.txt", "w") as file:
        file.write("in the world")
    {PAY}

@pytest.mark.once_effect
@settings(max_examples=2)
@given(st.integers())
def test_given(once, number):
    {PAY}
"""
    )
    lab.pytester.makeini("[pytest]\nfilterwarnings = ignore\n")
    result = lab.pytester.runpytest_inprocess("--once-chaos=crash", "-p", "no:asyncio", "-p", "no:randomly")
    assert "ESCAPED_EFFECT" not in result.stdout.str(), result.stdout.str()


def test_a_directory_that_is_no_part_of_the_world_is_refused_with_its_line(lab: Lab) -> None:
    """tmp_path_factory makes another one in every life: nothing in it survives a restart as it would in truth."""
    lab.write(
        f"""
import pytest

@pytest.mark.once_effect
def test_it(once, tmp_path_factory):
    {PAY}
    (tmp_path_factory.mktemp("made") / "note.txt").write_text("x")
"""
    )
    result = lab.explore()
    result.assert_outcomes(failed=1)
    text = " ".join(result.stdout.str().split())
    assert "ESCAPED_EFFECT" in text
    assert "note.txt was about to be opened for writing: it is below no tracked directory" in text
    assert "(test_it.py:6)" in text


def test_the_marker_allows_a_target_and_the_summary_names_it(lab: Lab) -> None:
    """An exception is part of what a pass rests on."""
    log = lab.path / "app.log"
    lab.write(
        f"""
import logging
import pytest

@pytest.mark.once_effect(allow="file:{log}")
def test_it(once):
    handler = logging.FileHandler({str(log)!r})
    handler.close()
    {PAY}
"""
    )
    result = lab.explore()
    result.assert_outcomes(passed=1)
    assert f"allowed and not explored: file:{log}" in "".join(result.stdout.str().replace("\n  ", " ").split("\n"))


@pytest.mark.parametrize("allow", ["/tmp/app.log", "file:", ["process:git", "all:*"]])
def test_an_allowance_that_names_no_target_fails_the_test_with_examples(lab: Lab, allow: object) -> None:
    """Silently allowing nothing would leave one puzzled by the next message."""
    lab.write(f"import pytest\n\n@pytest.mark.once_effect(allow={allow!r})\ndef test_it(once):\n    pass\n")
    result = lab.explore()
    result.assert_outcomes(errors=1)
    assert "names no target; write its kind, a colon and a pattern" in " ".join(result.stdout.str().split())
