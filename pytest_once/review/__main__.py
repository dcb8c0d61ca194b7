"""The command: `python -m pytest_once.review module:adapter`."""

from __future__ import annotations

import argparse
import importlib
import sys
import textwrap
from collections.abc import Sequence

from pytest_once.review.adapter import Adapter
from pytest_once.review.running import Row, Said, review

WIDTH = 100


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask the ten questions and print the table; 0 if each answer is yes, 1 if not, 2 for a wrong call."""
    parser = argparse.ArgumentParser(prog="python -m pytest_once.review", description=__doc__)
    parser.add_argument("adapter", metavar="MODULE:ADAPTER", help="an object as pytest_once.review.Adapter describes")
    parser.add_argument("--only", type=int, nargs="+", metavar="N", help="ask these questions only (1 to 10)")
    parser.add_argument("--max-states", type=int, default=400, help="states to explore for each check (400)")
    parser.add_argument("--deadline", type=float, default=120.0, help="seconds for each check (120)")
    options = parser.parse_args(arguments)
    try:
        adapter = _load(options.adapter)
    except ValueError as error:
        parser.error(str(error))
    answers = []
    for row in review(adapter, questions=options.only, max_states=options.max_states, deadline_s=options.deadline):
        print("\n".join(told(row)), flush=True)
        answers.append(row.said)
    counts = ", ".join(f"{answers.count(said)} {said}" for said in Said)
    print(f"\n{counts}")
    return 0 if all(said is Said.YES for said in answers) else 1


def _load(named: str) -> Adapter:
    module, _, name = named.partition(":")
    try:
        adapter = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{named!r} names no adapter ({error}); give module:name") from error
    if missing := [member for member in ("prepare", "open") if not callable(getattr(adapter, member, None))]:
        raise ValueError(f"{named} has no {' and no '.join(missing)}: see pytest_once.review.Adapter")
    return adapter  # type: ignore[no-any-return]


def told(row: Row) -> list[str]:
    """One row as lines of text; the remedy only where it is needed."""
    lines = _wrapped(f"{row.number:2}  {row.said:7}  ", row.question.text)
    for evidence in row.evidence:
        lines += _wrapped(" " * 13 + "- ", evidence)
    if row.said is Said.NO:
        lines += _wrapped(" " * 13 + "> ", row.question.remedy)
    return lines


def _wrapped(first: str, text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=" " * len(first)) or [first]


if __name__ == "__main__":
    sys.path.insert(0, "")
    sys.exit(main())
