"""`python -m pytest_once.reference`."""

from __future__ import annotations

import sys

from pytest_once.reference.command import main

if __name__ == "__main__":
    sys.exit(main())
