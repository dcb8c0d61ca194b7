"""`python -m once_fakes`."""

from once_fakes.standalone import main

if __name__ == "__main__":
    raise SystemExit(main())
