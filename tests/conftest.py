"""For every test of this project."""

pytest_plugins = ["pytester", "tests.services"]
