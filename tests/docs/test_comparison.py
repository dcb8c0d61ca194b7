"""docs/comparison.md shows what was measured, and claims nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
DRAWN = "random exceptions"


def without_draws(table: str) -> list[list[str]]:
    """Cells; of what Hypothesis draws, which changes with its version, only whether the mistake was seen."""
    rows = [re.split(r"  +", line.strip()) for line in table.strip("\n").splitlines()]
    return [[cell.split()[0] for cell in row] if row[0] == DRAWN else row for row in rows]


@pytest.mark.slow
def test_the_table_is_what_is_measured() -> None:
    """A comparison from memory flatters whoever makes it."""
    (shown,) = re.findall(r"<!-- measured -->\n```text\n(.*?)```", PAGE, re.DOTALL)
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "comparison.py")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    measured = without_draws(done.stdout)
    assert len(measured) == 7
    assert without_draws(shown) == measured
