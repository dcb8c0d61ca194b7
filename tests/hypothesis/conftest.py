"""The laboratory of the plugin's tests, here too."""

from __future__ import annotations

from tests.plugin.conftest import lab as lab
