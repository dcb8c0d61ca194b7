"""The README and the docs say what the code does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLE = "\n\n".join(re.findall(r"<!-- example: test_refund.py -->\n```python\n(.*?)```", README, re.DOTALL))
OUTPUTS = re.findall(r"<!-- output -->\n```text\n(.*?)```", README, re.DOTALL)
PATH = os.pathsep.join([str(ROOT), str(ROOT / "fakes")])


def run_readme_example(directory: Path, *arguments: str) -> str:
    """Run the README's example as a reader would, in a directory of its own."""
    (directory / "test_refund.py").write_text(EXAMPLE, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": PATH, "COLUMNS": "80", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "pytest_once.plugin", "--once-chaos", *arguments]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run_readme_example(tmp_path_factory.mktemp("readme"), "test_refund.py")


@pytest.mark.parametrize("number", range(2))
def test_the_readme_shows_what_the_example_really_prints(printed: str, number: int) -> None:
    """Output in the README that the code does not print any more would mislead the first reader."""
    shown = OUTPUTS[number].strip("\n")
    assert shown in printed, printed


def test_the_readme_links_only_to_what_exists() -> None:
    """A dead link is the first thing a newcomer finds."""
    for file in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\(([^)#]+)\)", file.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (file.parent / target).exists(), f"{file.name} links to {target}"


def test_the_reference_names_every_option_marker_argument_and_fixture_member() -> None:
    """What a user can write must be in the reference, and nothing else."""
    from pytest_once.once import Once
    from pytest_once.scenario import _MARKER_ARGUMENTS

    reference = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    plugin = (ROOT / "pytest_once" / "plugin.py").read_text(encoding="utf-8")
    options = set(re.findall(r'^    "([a-z-]+)": ', plugin, re.MULTILINE))
    assert {"chaos", "replay"} <= options
    for option in options:
        assert f"`--once-{option}" in reference
    for argument in _MARKER_ARGUMENTS:
        assert f"`{argument}`" in reference or f"{argument}=1" in reference
    for member in vars(Once):
        if not member.startswith("_") and member not in (
            "begin",
            "claimed",
            "forget_providers",
            "keeps_time",
            "misuse",
        ):
            assert f"`{member}" in reference, member
