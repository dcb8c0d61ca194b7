"""Speed as ratios, all measured in one run on one machine: `python benchmarks/run.py`.

Nothing here passes or fails; the numbers are for people. Each figure is the best of several rounds, because noise
only ever adds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "fakes")]

import pytest_once  # noqa: E402
from examples.five_cuts.intent import Intent  # noqa: E402
from examples.five_cuts.orchestrator import Orchestrator  # noqa: E402
from examples.five_cuts.protocols import relay, run  # noqa: E402
from examples.five_cuts.warehouse import WarehouseWithReceipts  # noqa: E402

COUNT = "SELECT key, COUNT(*) FROM reservations GROUP BY key"
INTENT = Intent("tenantA", "reserve42", "part-7", 1)

FRESH = """
import sys
sys.path[:0] = {path!r}
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit
from examples.five_cuts.intent import Intent
from examples.five_cuts.protocols import run
import httpx
run("outbox-dedup", Path({directory!r}), Intent("tenantA", "reserve42", "part-7", 1))
"""


def body(once: pytest_once.Once) -> None:
    """The corrected S1 outbox."""
    once.count("warehouse.db", COUNT)
    run("outbox-dedup", once.path, INTENT)


BATCH = 10
"""Intents in the longer subject, on which the rate is measured: start-up costs count for little there."""


def batch(once: pytest_once.Once) -> None:
    """The corrected outbox with several intents."""
    once.count("warehouse.db", COUNT)
    with Orchestrator(once.path) as orchestrator, WarehouseWithReceipts(once.path) as warehouse:
        for number in range(BATCH):
            orchestrator.record(Intent("tenantA", f"reserve{number}", "part-7", 1), "pending")
        relay(orchestrator, warehouse.reserve)


def best(rounds: int, measure: Callable[[], float]) -> float:
    return min(measure() for _ in range(rounds))


def timed(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def explored(rounds: int, subject: Callable[[pytest_once.Once], None]) -> tuple[float, int, int]:
    """(seconds, crash points, states) of a subject, explored to closure."""
    reports: list[pytest_once.Report] = []
    seconds = best(rounds, lambda: timed(lambda: reports.append(pytest_once.explore(subject))))
    report = reports[-1]
    if not report.passed:
        raise SystemExit(f"the benchmark's subject is not exactly once any more: {report.verdict} {report.problem}")
    return seconds, report.crash_points, report.states


def fresh_interpreter(rounds: int) -> float:
    """Seconds for one new interpreter that runs the same program once, httpx imported as a client would be."""

    def once() -> float:
        with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as directory:
            code = FRESH.format(path=[str(ROOT), str(ROOT / "fakes")], directory=directory)
            return timed(lambda: subprocess.run([sys.executable, "-c", code], check=True))

    return best(rounds, once)


IMPORT = """
import sys, time
sys.path[:0] = {path!r}
import pytest, _pytest.config
start = time.perf_counter()
import pytest_once.plugin
print(time.perf_counter() - start)
"""


def plugin_import(rounds: int) -> float:
    """Seconds to import the plugin into a process that has imported pytest, compiled files warm."""

    def once() -> float:
        code = IMPORT.format(path=[str(ROOT), str(ROOT / "fakes")])
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        return float(done.stdout)

    return best(rounds, once)


SHOP = """
CREATE TABLE jobs (id bigserial PRIMARY KEY, task text UNIQUE, state text, made_at timestamptz DEFAULT now());
CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), job bigint REFERENCES jobs, body jsonb);
INSERT INTO jobs (task, state) SELECT 'task ' || n, 'new' FROM generate_series(1, 10) AS n;
INSERT INTO outbox (job, body) SELECT id, jsonb_build_object('task', task) FROM jobs;
"""
"""A small schema with a few rows, as tests have it."""


def postgresql(rounds: int) -> dict[str, float | str]:
    """Milliseconds to picture a PostgreSQL database, and to put it back after one commit of another session."""
    url = os.environ.get("ONCE_POSTGRESQL_URL", "postgresql://127.0.0.1:5432/postgres")
    names = ("PostgreSQL picture, ms", "PostgreSQL put back, ms")
    try:
        import psycopg
    except ImportError:
        return dict.fromkeys(names, "skipped")
    try:
        admin = psycopg.connect(url, autocommit=True)
    except psycopg.OperationalError:
        return dict.fromkeys(names, "skipped")
    from pytest_once.stores.postgresql import PostgreSQLStore

    name = f"once_benchmark_{os.getpid()}"
    admin.execute(f"CREATE DATABASE {name}")
    try:
        named = urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
        with psycopg.connect(named) as connection:
            connection.execute(SHOP)
        store = PostgreSQLStore(named)
        try:
            picture = store.snapshot()

            def put_back() -> float:
                with psycopg.connect(store.address) as session:
                    session.execute("UPDATE jobs SET state = 'done' WHERE id = 1")
                return timed(lambda: store.restore(picture))

            return {
                names[0]: round(best(20 * rounds, lambda: timed(store.snapshot)) * 1000, 2),
                names[1]: round(best(5 * rounds, put_back) * 1000, 2),
            }
        finally:
            store.close()
    finally:
        admin.execute(f"DROP DATABASE {name}")
        admin.close()


def measure(rounds: int) -> dict[str, float | str]:
    seconds, crash_points, states = explored(rounds, body)
    batch_seconds, batch_points, batch_states = explored(rounds, batch)
    interpreter = fresh_interpreter(rounds)
    imported = plugin_import(rounds)
    return {
        "outbox exhausted, s": round(seconds, 3),
        "states": states,
        "crash points": crash_points,
        f"outbox of {BATCH} exhausted, s": round(batch_seconds, 3),
        f"outbox of {BATCH}, states": batch_states,
        f"outbox of {BATCH}, crash points": batch_points,
        "crash points judged per second": round(batch_points / batch_seconds),
        "fresh interpreter, s": round(interpreter, 3),
        "outbox exhausted / fresh interpreter": round(seconds / interpreter, 2),
        "fresh interpreter / crash point": round(interpreter / (batch_seconds / batch_points)),
        "import of the plugin over bare pytest, ms": round(imported * 1000, 1),
        **postgresql(rounds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds per figure; the best counts (default 5)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    figures = measure(options.rounds)
    if options.json:
        print(json.dumps(figures))
        return
    for name, figure in figures.items():
        print(f"{name:42} {figure:>10}")


if __name__ == "__main__":
    main()
