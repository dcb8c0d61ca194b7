"""The examples of agent frameworks, each in a virtual environment of its own, so that none breaks another's packages.

Left out by default: building the environments and exploring take minutes. `make agents` runs them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
AGENTS = ROOT / "examples" / "agents"
FRAMEWORKS = sorted(path.parent.name for path in AGENTS.glob("*/requirements.txt"))

ENVIRONMENTS = os.environ.get("ONCE_AGENT_ENVS")
"""A directory that keeps the environments from run to run."""

pytestmark = pytest.mark.agents


def pip(python: Path, *arguments: str) -> None:
    """Install wheels. Where that cannot be done it is a failure in CI, and a reason to skip elsewhere."""
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        said = f"pip could not install {' '.join(arguments)}:\n{done.stdout}{done.stderr}"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(said)


def environment(framework: str, directory: Path) -> Path:
    """The Python of the framework's environment, made where it is missing or its requirements have changed."""
    place = directory / framework
    python = place / "bin" / "python"
    requirements = AGENTS / framework / "requirements.txt"
    stamp = place / "installed"
    # What was installed, and from where: another checkout has another project to install.
    wanted = f"{ROOT}\n{sys.version}\n{requirements.read_text()}{(ROOT / 'pyproject.toml').read_text()}"
    if not stamp.exists() or stamp.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True)
        pip(python, "--only-binary", ":all:", "--requirement", str(requirements))
        pip(python, "--editable", str(ROOT))
        stamp.write_text(wanted)
    return python


OUTPUTS = re.findall(
    r"<!-- output: (\w+) -->\n```text\n(.*?)```", (ROOT / "docs" / "agents.md").read_text(encoding="utf-8"), re.DOTALL
)


@pytest.fixture(scope="session")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(ENVIRONMENTS).absolute() if ENVIRONMENTS else tmp_path_factory.mktemp("agents")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_unprotected_tool_is_convicted_and_the_protected_one_exhausted(framework: str, environments: Path) -> None:
    """S3.9, S4.11: the framework's own retry or resume doubles the effect; behind the gate it cannot."""
    python = environment(framework, environments)
    done = subprocess.run(
        [python, "-m", "pytest", "-p", "no:cacheprovider", "--once-chaos", "--once-timeout=60s", AGENTS / framework],
        cwd=ROOT,
        env={**{name: value for name, value in os.environ.items() if name != "PYTHONPATH"}, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    source = "".join(path.read_text() for path in (AGENTS / framework).glob("test_*.py"))
    tests = re.findall(r"^def (test_\w+)", source, re.MULTILINE)
    broken = re.findall(r"^@pytest\.mark\.convicted", source, re.MULTILINE)
    assert 0 < len(broken) < len(tests)
    assert f"{len(broken)} convicted, as documented" in done.stdout
    assert f"{len(tests)} passed" in done.stdout
    assert len(re.findall(r"^EXACTLY_ONCE\b", done.stdout, re.MULTILINE)) == len(tests) - len(broken), done.stdout
    shown = [text.strip("\n") for name, text in OUTPUTS if name == framework]
    assert shown, f"docs/agents.md shows nothing of {framework}"
    for text in shown:
        assert text in done.stdout, f"docs/agents.md shows what {framework} does not print any more:\n{done.stdout}"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_example_is_typed(framework: str, environments: Path) -> None:
    """A type checker sees a framework only in its own environment."""
    python = environment(framework, environments)
    cache = python.parents[1] / "mypy"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--python-executable", python, "--cache-dir", cache, AGENTS / framework],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
