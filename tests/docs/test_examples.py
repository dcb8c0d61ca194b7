"""Every block of Python in the README and in docs/ is run as it stands, or says that it is a fragment.

What a page says of a block stands in a comment before it:

- `<!-- example: NAME -->`: a file of the page. Blocks of one name are one file. Files named test_… are run by
  `pytest --once-chaos`, all those of a page at once; the others are what they import.
- `<!-- rewrite: NAME -->`: the file anew; from here on everything is run again.
- `<!-- example -->`: a program of its own.
- `<!-- output -->`: what pytest or the programs print. The verdict of each test is in such a block.
- `<!-- fragment -->`: not run. It compiles, and what it imports exists.

The profile is that of the page's own command, `$ pytest --once-chaos=…` in a console block.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RUN_ELSEWHERE = {"reference-implementation.md": "tests/reference/test_documented.py"}
"""Page -> the test that runs its programs."""

_BLOCK = re.compile(r"^(?:<!-- (?P<said>.*?) -->\n)?```(?P<language>\S*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_FEW = """
from hypothesis import settings
settings.register_profile("short", max_examples=3, stateful_step_count=3, database=None)
settings.load_profile("short")
"""


@dataclass
class Stage:
    """The files of a page up to a point, and the outputs that it shows of them."""

    files: dict[str, str] = field(default_factory=dict)
    programs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)


@dataclass
class Read:
    """A page, read."""

    stages: list[Stage] = field(default_factory=lambda: [Stage()])
    fragments: list[str] = field(default_factory=list)
    consoles: list[str] = field(default_factory=list)

    @property
    def chaos(self) -> str:
        """The option that the page tells the reader to run its tests with."""
        told = re.search(r"pytest (--once-chaos(?:=[a-z]+)?)", " ".join(self.consoles))
        return told[1] if told else "--once-chaos"


def read(text: str) -> Read:
    """Raises AssertionError for a block of Python that does not say what it is."""
    page = Read()
    blocks = list(_BLOCK.finditer(text))
    assert len(re.findall(r"^\s*```", text, re.MULTILINE)) == 2 * len(blocks), "a block is not read"
    for block in blocks:
        said, _, name = (block["said"] or "").partition(": ")
        stage = page.stages[-1]
        if said == "example" and name:
            before = stage.files.get(name)
            stage.files[name] = block["text"] if before is None else f"{before}\n\n{block['text']}"
        elif said == "rewrite":
            assert name in stage.files, f"{name} was not there before"
            page.stages.append(Stage({**stage.files, name: block["text"]}))
        elif said == "example":
            stage.programs.append(block["text"])
        elif said == "fragment":
            page.fragments.append(block["text"])
        elif said == "output" and not name:
            stage.outputs.append(block["text"])
        elif block["language"] == "console":
            page.consoles.append(block["text"])
        else:
            assert block["language"] not in ("python", "py"), f"neither example nor fragment:\n{block['text']}"
    return page


def read_file(page: Path) -> Read:
    try:
        return read(page.read_text(encoding="utf-8"))
    except AssertionError as error:
        raise AssertionError(f"{page.name}: {error}") from error


READ = {page.name: read_file(page) for page in PAGES}
RUN = [
    pytest.param(page, number, id=f"{page}-{number}", marks=() if page == "README.md" else pytest.mark.slow)
    for page, what in READ.items()
    for number, stage in enumerate(what.stages)
    if page not in RUN_ELSEWHERE and (stage.files or stage.programs)
]


def environment() -> dict[str, str]:
    """A reader's, with this plugin and no other."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "fakes")])
    return {**os.environ, "PYTHONPATH": paths, "COLUMNS": "80", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def run(command: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], cwd=directory, env=environment(), capture_output=True, text=True, check=False
    )


def run_programs(stage: Stage, directory: Path) -> str:
    """What they print; their own assertions say what must come of them."""
    printed = ""
    for number, program in enumerate(stage.programs):
        path = directory / f"program_{number}.py"
        path.write_text(program, encoding="utf-8")
        done = run(["-W", "error", path.name], directory)
        assert done.returncode == 0, done.stderr
        assert "assert" in program or stage.outputs, f"nothing says what must come of it:\n{program}"
        printed += done.stdout
    return printed


def place_of(case: ElementTree.Element) -> tuple[str, ...]:
    """File, class if there is one, and function."""
    module, *classes = str(case.get("classname")).split(".")
    return f"{module}.py", *classes, str(case.get("name"))


def run_tests(stage: Stage, directory: Path, chaos: str) -> str:
    """What pytest prints. Each explored test has the verdict that the page shows, and every other one passes."""
    for name, text in stage.files.items():
        (directory / name).write_text(text, encoding="utf-8")
    if any("hypothesis" in text for text in stage.files.values()):
        (directory / "conftest.py").write_text(_FEW, encoding="utf-8")
    tests = sorted(name for name in stage.files if name.startswith("test_"))
    if not tests:
        return ""
    results = directory / "results.xml"
    command = ["-m", "pytest", "-p", "pytest_once.plugin", chaos, f"--junit-xml={results}"]
    done = run([*command, *tests], directory)
    cases = list(ElementTree.parse(results).iter("testcase")) if results.exists() else []
    assert {place_of(case)[0] for case in cases} == set(tests), done.stdout + done.stderr
    shown = " ".join(" ".join(stage.outputs).split())
    for case in cases:
        test = "::".join(place_of(case))
        verdict = {one.get("name"): one.get("value") for one in case.iter("property")}.get("once_verdict")
        if verdict is None:
            assert not list(case.iter("failure")) + list(case.iter("error")), done.stdout
        elif verdict == "EXACTLY_ONCE":
            assert f"EXACTLY_ONCE {test}" in shown, f"the page does not show this:\n{done.stdout}"
        else:
            assert f"pytest {test} --once-replay" in shown, f"the page does not show this:\n{done.stdout}"
            assert verdict in shown, f"the page does not show this:\n{done.stdout}"
    return done.stdout


@pytest.mark.parametrize(("page", "number"), RUN)
def test_the_examples_of_a_page_do_what_it_says(page: str, number: int, tmp_path: Path) -> None:
    """An example that does not run costs a newcomer an evening; output of last year misleads."""
    stage = READ[page].stages[number]
    printed = run_programs(stage, tmp_path) + run_tests(stage, tmp_path, READ[page].chaos)
    for output in stage.outputs:
        assert output.strip("\n") in printed, f"{page} shows\n{output}\nbut this is printed:\n{printed}"


def check_fragment(text: str, beside: set[str]) -> None:
    """Raises AssertionError for what is no Python, or imports what is not there. beside: modules of the page."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise AssertionError(f"{error}:\n{text}") from error
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                assert importlib.util.find_spec(alias.name), alias.name
        elif isinstance(node, ast.ImportFrom) and node.module not in beside:
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                assert hasattr(module, alias.name), f"{node.module} has no {alias.name}"


@pytest.mark.parametrize("page", [name for name, what in READ.items() if what.fragments])
def test_fragments_are_python_and_import_what_exists(page: str) -> None:
    """They are read as carefully as what is run."""
    beside = {name.removesuffix(".py") for stage in READ[page].stages for name in stage.files}
    for fragment in READ[page].fragments:
        check_fragment(fragment, beside)


WRONG = """
<!-- example: test_it.py -->
```python
import pytest


@pytest.mark.once_effect
def test_it(once):
    once.provider("payments").call("refund", {"order": "order_123"})
```

<!-- output -->
```text
EXACTLY_ONCE  test_it.py::test_it: exhausted
```
"""


def test_the_check_refuses_what_is_wrong(tmp_path: Path) -> None:
    """Or every page would be right."""
    with pytest.raises(AssertionError, match="neither example nor fragment"):
        read("```python\nanything()\n```\n")
    with pytest.raises(AssertionError, match="not read"):
        read("  ```python\n  anything()\n  ```\n")
    with pytest.raises(AssertionError, match="has no verify"):
        check_fragment("from pytest_once import verify", set())
    with pytest.raises(AssertionError, match="invalid syntax"):
        check_fragment("once claim", set())
    with pytest.raises(AssertionError, match="the page does not show this"):
        run_tests(read(WRONG).stages[0], tmp_path, "--once-chaos=crash")


def test_what_is_typed_at_a_prompt_exists() -> None:
    """An option that is spelt wrongly, in a block or in a sentence, or a command that is gone."""
    plugin = (ROOT / "pytest_once" / "plugin.py").read_text(encoding="utf-8")
    options = {f"--once-{name}" for name in re.findall(r'^    "([a-z-]+)": ', plugin, re.MULTILINE)}
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert "--once-chaos" in options
    assert "test" in targets
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        named = set(re.findall(r"--once-[a-z]+(?:-[a-z]+)*", text))
        assert named <= options, f"{page.name}: {named - options}"
        for command in READ[page.name].consoles:
            assert set(re.findall(r"\bmake ([a-z]+)", command)) <= targets, page.name
            for module in re.findall(r"python -m ([\w.]+)", command):
                assert module == "venv" or importlib.util.find_spec(module), f"{page.name}: {module}"
