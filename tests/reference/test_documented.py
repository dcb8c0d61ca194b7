"""The code in docs/reference-implementation.md runs as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from examples.outbox_review import naive
from pytest_once.review.__main__ import told
from pytest_once.review.running import review

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference-implementation.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"<!-- example -->\n```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("number", range(4))
def test_the_code_of_the_page_runs(number: int, tmp_path: Path) -> None:
    """A page that shows code of last year is worse than none. Its own assertions say what must come of it."""
    assert len(EXAMPLES) == 4
    (tmp_path / "example.py").write_text(EXAMPLES[number], encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", "example.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "assert" in EXAMPLES[number]


def test_the_row_of_a_review_is_a_real_one() -> None:
    """S2.12: what the page shows of the command is what it prints."""
    (row,) = review(naive.ADAPTER, questions=(1,))
    assert "```text\n" + "\n".join(told(row)) + "\n```" in PAGE
