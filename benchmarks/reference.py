"""What the gate costs, as ratios in one run on one machine: `python benchmarks/reference.py`.

Nothing here passes or fails; the numbers are for people. Each figure is the best of several rounds, because noise
only ever adds. Files lie in memory where the machine has such a directory; one figure is on the disk, for comparison.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from pytest_once.reference import transitions  # noqa: E402
from pytest_once.reference.databases import SQLite  # noqa: E402
from pytest_once.reference.gate import Gate  # noqa: E402
from pytest_once.reference.promise import NOTHING  # noqa: E402
from pytest_once.reference.transitions import Attempt, Request  # noqa: E402

MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
CALLS = 1000

_numbers = iter(range(10**12))


def bare(attempt: Attempt | None) -> dict[str, str]:
    """The tool: as good as nothing, so that what is measured is the gate."""
    return {"id": "re_1"}


def request() -> Request:
    number = next(_numbers)
    return Request(f"tenant:task-{number}:refund:pay", "refund", {"order": f"order_{number}", "amount": 500})


@contextmanager
def gate(directory: str | None, power_loss: bool = True) -> Iterator[Gate]:
    with tempfile.TemporaryDirectory(dir=directory) as made:
        database = SQLite(Path(made) / "gate.db", power_loss=power_loss)
        database.migrate()
        try:
            yield Gate(database)
        finally:
            database.close()


def seconds_each(act: Callable[[], object], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        act()
    return (time.perf_counter() - start) / times


def best(rounds: int, act: Callable[[], object], times: int = CALLS) -> float:
    return min(seconds_each(act, times) for _ in range(rounds))


def protected(rounds: int, directory: str | None, times: int = CALLS, power_loss: bool = True) -> float:
    """Seconds that the gate adds to a call: admission, receipt, and both commits."""
    with gate(directory, power_loss) as opened:
        with_gate = best(rounds, lambda: opened.call(request(), bare), times)
    return with_gate - best(rounds, lambda: bare(None), times)


def replayed(rounds: int) -> float:
    """Seconds for a request that gets its receipt."""
    with gate(MEMORY) as opened:
        known = request()
        opened.call(known, bare)
        return best(rounds, lambda: opened.call(known, bare))


def admissions(rounds: int) -> float:
    """Admissions in a second, one process."""
    with gate(MEMORY) as opened:

        def admit() -> None:
            opened.database.transact(transitions.admit(request(), NOTHING, 300.0, 20, time.time()))

        return 1 / best(rounds, admit)


def fill(path: str, rows: int) -> None:
    """Settled intents with their attempts, as the gate leaves them, written in bulk; one in a thousand is UNKNOWN."""
    with closing(sqlite3.connect(path)) as connection:
        (have,) = connection.execute("SELECT COUNT(*) FROM gate_intents").fetchone()
        numbers = range(have, rows)
        connection.executemany(
            "INSERT INTO gate_intents (intent_id, tool, payload, fingerprint, state, result, reason, attempts, "
            "sent_since, sent_until, unknown_since, created_at, updated_at) "
            "VALUES (?, 'refund', '{\"amount\":500}', ?, ?, '{\"id\":\"re_1\"}', 'the tool returned', 1, "
            "?, ?, ?, ?, ?)",
            (
                (
                    f"old:task-{number * 7919 % 10_000_019}:refund:pay",
                    f"{number:064x}",
                    "UNKNOWN" if number % 1000 == 0 else "SUCCEEDED",
                    *(float(number),) * 2,
                    float(number) if number % 1000 == 0 else None,
                    *(float(number),) * 2,
                )
                for number in numbers
            ),
        )
        connection.executemany(
            "INSERT INTO gate_attempts (intent_id, attempt, started_at, ended_at, outcome) VALUES (?, 1, ?, ?, ?)",
            (
                (f"old:task-{number * 7919 % 10_000_019}:refund:pay", float(number), float(number), "SUCCEEDED")
                for number in numbers
            ),
        )
        connection.commit()


def resident_mib() -> float:
    """Memory of this process now, or the most it ever had where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 2**20
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def growth(rounds: int, sizes: list[int]) -> Iterator[tuple[int, float, float]]:
    """(rows, median seconds of a protected call, MiB of this process) as the table grows."""
    with gate(MEMORY) as opened:
        for rows in sizes:
            fill(opened.database.path, rows)  # type: ignore[attr-defined]
            times = [seconds_each(lambda: opened.call(request(), bare), 100) for _ in range(10 * rounds)]
            yield rows, statistics.median(times), resident_mib()


def measure(rounds: int, rows: int) -> dict[str, float]:
    added = protected(rounds, MEMORY)
    on_disk = protected(rounds, None, times=100)
    figures = {
        "gate adds to a call, ms": added * 1000,
        "the same on the default disk, ms": on_disk * 1000,
        "disk / memory": on_disk / added,
        "on that disk, power_loss=False, ms": protected(rounds, None, power_loss=False) * 1000,
        "receipt replayed, ms": replayed(rounds) * 1000,
        "admissions a second": admissions(rounds),
    }
    sizes = [size for size in (1_000, 10_000, 100_000, 1_000_000) if size < rows] + [rows]
    found = list(growth(rounds, sizes))
    for size, each, mib in found:
        figures[f"call at {size} rows, ms"] = each * 1000
        figures[f"memory at {size} rows, MiB"] = mib
    figures["call, most / fewest rows"] = found[-1][1] / found[0][1]
    figures["memory, most / fewest rows"] = found[-1][2] / found[0][2]
    return {name: round(figure, 3) for name, figure in figures.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds per figure; the best counts (default 5)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="intents in the largest table (default 1000000)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    figures = measure(options.rounds, options.rows)
    if options.json:
        print(json.dumps(figures))
        return
    for name, figure in figures.items():
        print(f"{name:42} {figure:>12}")


if __name__ == "__main__":
    main()
