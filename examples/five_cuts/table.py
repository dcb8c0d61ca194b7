"""The fifteen counts of the five-cut experiment, from fifteen runs made now.

Each run starts the process on empty databases, kills it with SIGKILL at the cut, lets one recovery go through, and
counts the rows that are then in the warehouse.

    python examples/five_cuts/table.py
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from examples.five_cuts.intent import Intent  # noqa: E402
from examples.five_cuts.protocols import ProtocolName, Reserve, run  # noqa: E402
from pytest_once import Once, Report, Verdict, explore, replay  # noqa: E402
from pytest_once.boundaries import Boundary  # noqa: E402
from pytest_once.faults import END, LifePlan, Schedule, mark_of  # noqa: E402

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PROTOCOLS: tuple[ProtocolName, ...] = ("mark-first", "outbox-no-dedup", "outbox-dedup")
CUTS = (
    "before the local record",
    "after the record, before sending",
    "after the effect, before the response is observed",
    "after the response, before the done mark",
    "after the done mark",
)
RESERVE = Intent("tenantA", "reserve42", "bearing", 2)
MEANING = {0: "lost", 1: "once", 2: "twice"}
SAYS = {0: Verdict.OMISSION, 1: Verdict.EXACTLY_ONCE, 2: Verdict.DUPLICATE}

ACTED = "the warehouse has acted"
OBSERVED = "the response is observed"


class Unexpected(Exception):
    """A run that does not show what it should."""


# Running


def process(protocol: ProtocolName) -> Callable[[Once], None]:
    """The process under test, with a named point on either side of the response."""

    def body(once: Once) -> None:
        def through(reserve: Reserve) -> Reserve:
            def respond(intent: Intent) -> str:
                response = reserve(intent)
                once.boundary(ACTED)
                return response

            send = once.tool(respond, name="warehouse", counted=False)

            def request(intent: Intent, /) -> str:
                response = send(intent)
                once.boundary(OBSERVED)
                return response

            return request

        once.count(once.path / "warehouse.db", "SELECT key, COUNT(*) FROM reservations GROUP BY key")
        run(protocol, once.path, RESERVE, through=through)

    return body


def crash_points(boundaries: Sequence[Boundary]) -> tuple[str, ...]:
    """Where to kill the process for each cut, as marks of a schedule. A crash is before the boundary it names."""

    def before(kind: str, target: str) -> str:
        for boundary in boundaries:
            if boundary.kind == kind and boundary.target.startswith(target):
                return mark_of(boundary)
        raise Unexpected(f"the process has no boundary {kind} {target!r}")

    return (
        before("sqlite", "orchestrator.db COMMIT"),
        before("tool", "warehouse"),
        before("point", ACTED),
        before("point", OBSERVED),
        END,
    )


def cut(protocol: ProtocolName, crash: str, directory: Path) -> int:
    """One run, killed at the crash point and recovered once: how many reservations are in the database it leaves."""
    schedule = Schedule((LifePlan(crash=crash), LifePlan()))
    report = replay(process(protocol), str(schedule), name=protocol, keep=directory)
    if report.problem:
        raise Unexpected(f"{protocol}, {schedule}: {report.problem}")
    if [life.killed for life in report.replayed] != [True, False]:
        raise Unexpected(f"{protocol}, {schedule}: not one kill and one recovery")
    with closing(sqlite3.connect(directory / "warehouse.db")) as conn:
        (count,) = conn.execute("SELECT COUNT(*) FROM reservations").fetchone()
    if report.verdict is not SAYS.get(count):
        raise Unexpected(f"{protocol}, {schedule}: {count} reservations, but the verdict is {report.verdict}")
    return int(count)


def experiment(keep: Path) -> tuple[dict[str, list[int]], dict[str, Report]]:
    """The counts of every protocol at every cut, and what exploring it for any number of crashes says."""
    counts: dict[str, list[int]] = {}
    explored: dict[str, Report] = {}
    for protocol in PROTOCOLS:
        report = explore(process(protocol), name=protocol, profile="crash")
        if report.problem:
            raise Unexpected(f"{protocol}: {report.problem}")
        explored[protocol] = report
        counts[protocol] = [
            cut(protocol, crash, keep / protocol / f"cut-{number}")
            for number, crash in enumerate(crash_points(report.boundaries))
        ]
    return counts, explored


# Showing


def shown(count: int) -> str:
    return f"{count} {MEANING[count]}" if count != 1 else "1"


def print_table(counts: Mapping[str, Sequence[int]], explored: Mapping[str, Report]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    style = {0: "bold yellow", 1: "green", 2: "bold red"}
    table = Table(title="Reservations after one crash and one recovery", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("protocol", no_wrap=True)
    for number in range(len(CUTS)):
        table.add_column(f"cut {number}", no_wrap=True)
    for protocol, row in counts.items():
        table.add_row(protocol, *(f"[{style[n]}]{shown(n)}[/]" for n in row))
    console.print(table)
    for number, where in enumerate(CUTS):
        console.print(f"  cut {number}: {where}")
    console.print("\nCrashed anywhere, any number of times:")
    for protocol, report in explored.items():
        console.print(f"  {protocol}: {report.verdict} ({report.states} states, {report.coverage})")


def draw(counts: Mapping[str, Sequence[int]], axes: Axes) -> None:
    """A grid of protocols and cuts: a cell says its count in words, in dots, in hatching and in colour."""
    from matplotlib.patches import FancyBboxPatch

    look: dict[int, dict[str, Any]] = {
        0: {"facecolor": "#fdf3d8", "edgecolor": "#b07d00", "hatch": "...", "linewidth": 1.6},
        1: {"facecolor": "#f4f6f8", "edgecolor": "#c3cbd3", "linewidth": 1.0},
        2: {"facecolor": "#f7d4d0", "edgecolor": "#a8281b", "hatch": "///", "linewidth": 1.6},
    }
    ink = {0: "#7a5600", 1: "#4a5661", 2: "#8c1d12"}
    for row, numbers in enumerate(counts.values()):
        for column, count in enumerate(numbers):
            outline = FancyBboxPatch(
                (column - 0.42, row - 0.38), 0.84, 0.76, boxstyle="round,pad=0,rounding_size=0.06", **look[count]
            )
            axes.add_patch(outline)
            plate: dict[str, Any] = {"facecolor": look[count]["facecolor"], "edgecolor": "none", "pad": 3.5}
            axes.text(
                column,
                row - 0.1,
                str(count),
                ha="center",
                va="center",
                size=21,
                weight="bold",
                color=ink[count],
                bbox=plate,
            )
            axes.text(
                column, row + 0.2, MEANING[count], ha="center", va="center", size=10.5, color=ink[count], bbox=plate
            )
    axes.set_xlim(-0.5, len(CUTS) - 0.5)
    axes.set_ylim(len(counts) - 0.5, -0.5)
    labels = (
        "before the\nlocal record\n",
        "after the record,\nbefore sending\n",
        "after the effect,\nbefore the response\nis observed",
        "after the response,\nbefore the\ndone mark",
        "after the\ndone mark\n",
    )
    axes.set_xticks(range(len(CUTS)), [f"cut {number}\n{label}" for number, label in enumerate(labels)], size=9.5)
    axes.set_yticks(range(len(counts)), list(counts), size=11, weight="bold")
    axes.tick_params(length=0, pad=6, labelcolor="#2d363e")
    axes.xaxis.tick_top()
    for spine in axes.spines.values():
        spine.set_visible(False)


def plot(counts: Mapping[str, Sequence[int]], file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    pyplot.rcParams["hatch.linewidth"] = 0.5
    figure, axes = pyplot.subplots(figsize=(9.6, 5.2), dpi=150, layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12))
    figure.suptitle("Reservations after one crash and one recovery", size=14, weight="bold", color="#1c2329")
    draw(counts, axes)
    figure.supxlabel(
        "killed with SIGKILL at the cut, started again on what it left; rows counted in the warehouse's database",
        size=9,
        color="#5b6670",
    )
    figure.savefig(file)
    pyplot.close(figure)


# The command line


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Kill three protocols at five cuts, recover them, and count what they did.", allow_abbrev=False
    )
    parser.add_argument("--json", action="store_true", help="print the counts as JSON instead of a table")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the counts (needs the extra: plot)")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep each run's databases in DIR/<protocol>/cut-<number>"
    )
    given = parser.parse_args(argv)
    if given.plot is not None:
        if given.plot.suffix.lower() != ".png":
            parser.error(f"--plot {given.plot}: the picture is a PNG file, so its name ends in .png")
        if not given.plot.absolute().parent.is_dir():
            parser.error(f"--plot {given.plot}: its directory does not exist")
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            parser.error(
                "--plot needs matplotlib, which the extra 'plot' brings: pip install 'pytest-once-chaos[plot]'"
            )
    if given.keep is not None and given.keep.exists() and (not given.keep.is_dir() or any(given.keep.iterdir())):
        parser.error(f"--keep {given.keep}: give a directory that is new or empty, so that old runs are not mixed in")
    return given


def main(argv: Sequence[str] | None = None) -> int:
    given = arguments(argv)
    try:
        with tempfile.TemporaryDirectory(prefix="five-cuts-") as scratch:
            counts, explored = experiment(given.keep or Path(scratch))
        if given.plot is not None:
            plot(counts, given.plot)
    except (Unexpected, OSError) as error:
        print(f"table.py: {error}", file=sys.stderr)
        return 1
    if given.json:
        print(json.dumps(counts))
    else:
        print_table(counts, explored)
    return 0


if __name__ == "__main__":
    sys.exit(main())
