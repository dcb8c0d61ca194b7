"""What the README and the docs name exists, and what a user can write is named."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_readme_links_only_to_what_exists() -> None:
    """A dead link is the first thing a newcomer finds."""
    for file in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for target in re.findall(r"\]\(([^)#]+)\)", file.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (file.parent / target).exists(), f"{file.name} links to {target}"


def test_the_index_and_the_navigation_name_every_page() -> None:
    """A page that nobody links to is not read."""
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        if page.name != "index.md":
            assert f"]({page.name})" in index, page.name
        assert re.search(rf"^ +- {re.escape(page.name)}$", navigation, re.MULTILINE), page.name


def test_the_reference_names_every_option_hook_marker_argument_and_fixture_member() -> None:
    """What a user can write must be in the reference, and nothing else."""
    import once_fakes
    import pytest_once
    from pytest_once import hookspecs
    from pytest_once.once import Once
    from pytest_once.report import Report
    from pytest_once.scenario import _MARKER_ARGUMENTS

    reference = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    plugin = (ROOT / "pytest_once" / "plugin.py").read_text(encoding="utf-8")
    options = set(re.findall(r'^    "([a-z-]+)": ', plugin, re.MULTILINE))
    assert {"chaos", "replay"} <= options
    for option in options:
        assert f"`--once-{option}" in reference
    for key in re.findall(r'addini\("(once_[a-z_]+)"', plugin):
        assert f"`{key}" in reference, key
    for hook in (name for name in vars(hookspecs) if name.startswith("pytest_once_")):
        assert f"`{hook}(" in reference, hook
    for name in (*pytest_once.__all__, *once_fakes.__all__, "passed", *(one.name for one in fields(Report))):
        assert f"`{name}`" in reference or f"`{name}(" in reference, name
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


def test_the_architecture_names_every_module_of_the_engine() -> None:
    """A map that lacks rooms is not looked at twice."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = page[page.index("## The rooms") : page.index("`once_fakes`: ")]
    named = set(re.findall(r"`([a-z_]+/?)`", rooms)) - {"pytest_once"}
    there = {path.stem for path in (ROOT / "pytest_once").glob("*.py") if path.stem != "__init__"}
    there |= {f"{path.parent.name}/" for path in (ROOT / "pytest_once").glob("*/__init__.py")}
    assert named == there
    places = set(re.findall(r"`(tests(?:/[a-z]+)?)/?`", page))
    assert {path.parent.relative_to(ROOT).as_posix() for path in (ROOT / "tests").glob("*/test_*.py")} <= places
