"""The command line: `python -m pytest_once.reference queue|resolve|metrics|costs|matrix`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pytest_once.reference import costs, failure_modes, metrics, people
from pytest_once.reference.databases import Database, PostgreSQL, SQLite
from pytest_once.reference.people import DECISIONS, NotResolved, Question
from pytest_once.reference.steps import Steps

T = TypeVar("T")

_DATABASE = "path of a SQLite file, or a postgresql:// URL"


class _Unusable(Exception):
    """The named database cannot be used; the message says why."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 if it was carried out, 1 if it could not be, 2 for a wrong call."""
    options = _parser().parse_args(arguments)
    try:
        lines: list[str] = options.run(options)
    except (_Unusable, NotResolved, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("\n".join(lines))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pytest_once.reference", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, help_: str, run: Any, database: bool = True) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=help_, description=help_)
        added.set_defaults(run=run)
        if database:
            added.add_argument("database", metavar="DB", help=_DATABASE)
        return added

    queue = command("queue", "list what a person has to decide, with the evidence", _queue)
    queue.add_argument("--limit", type=int, default=100, help="questions to show (100)")
    queue.add_argument("--json", action="store_true", help="one JSON object a line")

    resolve = command("resolve", "decide one intent, and say who and why", _resolve)
    resolve.add_argument("intent", help="the intent's id, as the queue shows it")
    resolve.add_argument("decision", choices=DECISIONS, help="what the evidence says")
    resolve.add_argument("--by", required=True, help="who decides")
    resolve.add_argument("--why", required=True, help="on what evidence")
    resolve.add_argument("--result", help="the receipt for later requests, JSON (with executed)")

    numbers = command("metrics", "how much is undecided, for how long, and who decides it", _metrics)
    numbers.add_argument("--prometheus", action="store_true", help="in Prometheus' text format")
    numbers.add_argument("--days", type=float, help="count only what was resolved in that many days")

    calculator = command("costs", "what retries cost in a day, without the gate and with it", _costs, database=False)
    default = costs.Rates()
    for name, help_ in (
        ("calls", "calls in a day"),
        ("ambiguous", "share without an answer"),
        ("acted", "share of those that had acted"),
        ("duplicate-cost", "cost of one duplicate"),
        ("resolved", "share of UNKNOWN that look-ups decide"),
        ("person-cost", "cost of one case for a person"),
    ):
        value = getattr(default, name.replace("-", "_"))
        calculator.add_argument(f"--{name}", type=float, default=value, help=f"{help_} ({value:g})")

    command("matrix", "carry out every failure mode, and print what became of it", _matrix, database=False)
    return parser


def _open(named: str) -> Database:
    if named.startswith(("postgresql://", "postgres://")):
        return PostgreSQL(named)
    if not Path(named).is_file():
        raise _Unusable(f"there is no file {named}; give the {_DATABASE}")
    return SQLite(named)


def _within(named: str, steps: Steps[T]) -> T:
    database = _open(named)
    try:
        return database.transact(steps)
    except (NotResolved, ValueError, ImportError):
        raise
    except Exception as error:
        raise _Unusable(
            f"{named}: {type(error).__name__}: {error}. Is it the gate's database, and has the gate run its migrations?"
        ) from error
    finally:
        database.close()


def _queue(options: argparse.Namespace) -> list[str]:
    questions = _within(options.database, people.queue(options.limit))
    if options.json:
        return [json.dumps(_plain(question), ensure_ascii=False) for question in questions]
    if not questions:
        return ["nobody has to decide anything"]
    return [line for question in questions for line in (*_told(question), "")][:-1]


def _plain(question: Question) -> dict[str, Any]:
    return {name: getattr(question, name) for name in Question.__slots__}


def _told(question: Question) -> list[str]:
    now = time.time()
    lines = [
        f"{question.intent_id}  {question.state}" + ("  CONTRADICTION" if question.contradiction else ""),
        f"  asked        {_instant(question.asked_at)} ({_age(now - question.asked_at)} ago)",
        f"  tool         {question.tool} {question.payload}",
        f"  fingerprint  {question.fingerprint}",
        f"  why          {question.reason}",
        f"  sent         between {_instant(question.window_from)} and {_instant(question.window_to)}",
    ]
    candidates = [json.dumps(each, sort_keys=True, ensure_ascii=False) for each in question.candidates]
    lines += [f"  candidate    {each}" for each in candidates or ["none"]]
    return lines


def _instant(seconds: float | None) -> str:
    return "?" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _age(seconds: float) -> str:
    for length, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _resolve(options: argparse.Namespace) -> list[str]:
    result = options.result
    if result is not None:
        try:
            json.loads(result)
        except ValueError as error:
            raise ValueError(f"--result is not JSON: {error}") from None
    steps = people.resolve(options.intent, options.decision, options.by, options.why, time.time(), result)
    state = _within(options.database, steps)
    return [f"{options.intent} is {state}"]


def _metrics(options: argparse.Namespace) -> list[str]:
    now = time.time()
    since = 0.0 if options.days is None else now - options.days * 86400
    found = _within(options.database, metrics.measure(now, since))
    if options.prometheus:
        return metrics.prometheus(found).splitlines()
    oldest = _age(found.oldest_s)
    mean, share = found.mean_s, found.person_share
    decided = ", ".join(f"{count} by {by}" for by, count in found.resolved.items()) or "none"
    return [
        f"unknown now           {found.unknown}" + (f", the oldest for {oldest}" if found.unknown else ""),
        f"in flight             {found.in_flight}",
        f"resolved              {decided}",
        f"mean time to resolve  {'-' if mean is None else _age(mean)}",
        f"needed a person       {'-' if share is None else f'{share:.1%}'}",
        f"waiting for a person  {found.waiting_for_person}",
        f"contradictions        {found.contradictions}",
    ]


def _costs(options: argparse.Namespace) -> list[str]:
    names = ("calls", "ambiguous", "acted", "duplicate_cost", "resolved", "person_cost")
    return costs.told(costs.Rates(**{name: getattr(options, name) for name in names}))


def _matrix(options: argparse.Namespace) -> list[str]:
    return failure_modes.told(failure_modes.run())
