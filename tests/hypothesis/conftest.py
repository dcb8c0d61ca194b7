"""The laboratory of the plugin's tests, here too, and Hypothesis as it is on a developer's machine."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis.errors import InvalidArgument

from tests.plugin.conftest import lab as lab


@pytest.fixture(autouse=True)
def _as_at_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where Hypothesis sees CI it draws without a seed and keeps no database: here both are the point."""
    in_ci = "CI" in os.environ
    for name in ("CI", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
    # On a loaded machine an example of a plain run may take longer than the 200 ms it has.
    settings.register_profile("as at home", settings.get_profile("default"), deadline=None)
    settings.load_profile("as at home")
    yield
    settings.load_profile("default")
    if in_ci:
        try:
            settings.load_profile("ci")
        except InvalidArgument:
            return  # an older Hypothesis, which has no such profile
