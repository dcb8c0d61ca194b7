"""Each framework is asked for by name, in the environment that has it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_once import Once
from pytest_once.reference.databases import SQLite

HERE = Path(__file__).parent

# Nothing here may report to anybody, whatever is set outside. Before any framework is imported.
os.environ |= {
    "DO_NOT_TRACK": "1",
    "LANGSMITH_TRACING": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OTEL_SDK_DISABLED": "true",
}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`pytest examples` leaves the frameworks out; `pytest examples/agents/langgraph` does not."""
    named = (Path(config.invocation_params.dir, arg.partition("::")[0]).resolve() for arg in config.args)
    if collection_path.parent == HERE and collection_path.is_dir():
        return None if any(path.is_relative_to(collection_path) for path in named) else True
    return None


@pytest.fixture
def gates(once: Once) -> Iterator[SQLite]:
    """The gate's database, as each process opens it."""
    database = SQLite(once.path / "gate.db")
    database.migrate()
    yield database
    database.close()
