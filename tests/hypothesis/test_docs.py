"""The examples of docs/hypothesis.md, as they are printed there."""

from __future__ import annotations

import re

import pytest

from tests.plugin.conftest import ROOT, Lab


@pytest.mark.slow
def test_the_examples_of_the_page_run(lab: Lab) -> None:
    """An example that does not run costs a newcomer an evening."""
    page = (ROOT / "docs" / "hypothesis.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(examples) == 3
    for number, example in enumerate(examples):
        lab.write(example, name=f"test_example_{number}")
    (lab.path / "conftest.py").write_text(
        "from hypothesis import settings\n"
        "settings.register_profile('short', max_examples=3, stateful_step_count=3, database=None)\n"
        "settings.load_profile('short')\n"
    )
    done = lab.run_apart("--once-chaos=crash", "-q")
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
