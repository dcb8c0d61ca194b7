"""The table of incidents lists every module once, and every link in it leads to one."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent


def test_the_table_and_the_modules_agree() -> None:
    linked = re.findall(r"^\| ([A-Z]\d\d) \|.*?\]\((test_\w+\.py)\)", (HERE / "README.md").read_text(), re.MULTILINE)
    modules = {path.name for path in HERE.glob("test_[a-z][0-9][0-9]_*.py")}
    assert len(linked) == len(modules) == 76
    assert {name for _, name in linked} == modules
    assert all(name.startswith(f"test_{number.lower()}_") for number, name in linked)
