"""For every test of this project."""

import os

pytest_plugins = ["pytester", "tests.services"]

# A pytest that a test starts must not shuffle: installed for one test, pytest-randomly would do so in all.
os.environ["PYTEST_ADDOPTS"] = "-p no:randomly"
