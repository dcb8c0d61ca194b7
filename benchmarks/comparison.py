"""One refund, written in five ways, under kinds of test that people write: `python benchmarks/comparison.py`.

Which mistakes does each see, and in how many runs of the code under test? Everything printed is measured in this run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "fakes")]

from benchmarks.compared.refunds import CALLS, WAYS  # noqa: E402

METHODS = (
    ("plain test", "test_plain.py", "", ()),
    ("plain, --reruns 5", "test_plain.py", "", ("-p", "pytest_rerunfailures", "--reruns", "5")),
    ("raises once, before", "test_one_failure.py", "before", ()),
    ("raises once, after", "test_one_failure.py", "after", ()),
    ("random exceptions", "test_random.py", "", ()),
    ("--once-chaos", "test_once.py", "", ("-p", "pytest_once.plugin", "--once-chaos")),
)
"""What it is called, file, the tests of it that are meant, options."""


@dataclass
class Cell:
    """How one kind of test fared with one way of refunding."""

    tests: int
    failed: int
    runs: int
    verdict: str = ""

    def __str__(self) -> str:
        seen = self.verdict or ("seen" if self.failed else "-")
        of = f" {self.failed}/{self.tests}" if self.tests > 1 and self.failed else ""
        return f"{seen}{of} ({self.runs})"


def measure(file: str, selected: str, options: tuple[str, ...]) -> Iterator[tuple[str, Cell]]:
    """Run the tests in a pytest of their own."""
    with tempfile.TemporaryDirectory() as made:
        results, calls = Path(made) / "results.xml", Path(made) / "calls"
        ours = "pytest_once.plugin" in options
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "fakes")]),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_ADDOPTS": "",
        } | ({} if ours else {CALLS: str(calls)})
        command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", made, "--import-mode=importlib"]
        command += ["-p", "no:cacheprovider", f"--junit-xml={results}", *options, "-k", selected]
        path = str(ROOT / "benchmarks" / "compared" / file)
        done = subprocess.run([*command, path], env=environment, cwd=made, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):
            raise RuntimeError(done.stdout + done.stderr)
        lives = Counter(calls.read_text().split()) if calls.exists() else Counter()
        cases = list(ElementTree.parse(results).iter("testcase"))
        for way in WAYS:
            mine = [case for case in cases if way.__name__ in re.split(r"[-\[\]]", str(case.get("name")))]
            said = {str(one.get("name")): str(one.get("value")) for case in mine for one in case.iter("property")}
            failed = sum(case.find("failure") is not None for case in mine)
            runs = int(said.get("once_runs", lives[way.__name__]))
            yield way.__name__, Cell(len(mine), failed, runs, said.get("once_verdict", "") if failed else "")


def main() -> None:
    names = [way.__name__ for way in WAYS]
    rows = [["", *names]]
    for called, file, selected, options in METHODS:
        found = dict(measure(file, selected, options))
        rows.append([called, *(str(found[name]) for name in names)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main()
