"""`python examples/five_cuts/table.py`, run as a reader would run it."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from examples.five_cuts import table

SCRIPT = Path(table.__file__)
PUBLISHED = {
    "mark-first": [1, 0, 1, 1, 1],
    "outbox-no-dedup": [1, 1, 2, 2, 1],
    "outbox-dedup": [1, 1, 1, 1, 1],
}
PNG = b"\x89PNG\r\n\x1a\n"


def run(directory: Path, *arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
    """The script in another directory, with nothing on the path that the project does not put there."""
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_the_published_counts_come_out_of_real_runs(tmp_path: Path) -> None:
    """S1.3: as JSON and as a picture, and the kept databases contain what is printed."""
    pytest.importorskip("matplotlib")
    ended = run(tmp_path, "--json", "--plot", "cuts.png", "--keep", "runs")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert json.loads(ended.stdout) == PUBLISHED
    assert (tmp_path / "cuts.png").read_bytes().startswith(PNG)
    for protocol, row in PUBLISHED.items():
        for number, count in enumerate(row):
            kept = tmp_path / "runs" / protocol / f"cut-{number}"
            assert rows(kept / "warehouse.db", "SELECT key FROM reservations") == [("tenantA:reserve42",)] * count
            assert rows(kept / "orchestrator.db", "SELECT state FROM intents") == [("done",)]


def rows(database: Path, sql: str) -> list[tuple[str]]:
    assert database.is_file()
    with closing(sqlite3.connect(database)) as conn:
        return conn.execute(sql).fetchall()


@pytest.mark.slow
def test_without_arguments_it_prints_a_table(tmp_path: Path) -> None:
    """S1.3: readable without colour, and it leaves nothing behind."""
    ended = run(tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = [line.split() for line in ended.stdout.splitlines()]
    assert ["mark-first", "1", "0", "lost", "1", "1", "1"] in lines
    assert ["outbox-no-dedup", "1", "1", "2", "twice", "2", "twice", "1"] in lines
    assert ["outbox-dedup", "1", "1", "1", "1", "1"] in lines
    assert "\x1b" not in ended.stdout
    assert max(map(len, ended.stdout.splitlines())) <= 80
    assert list(tmp_path.iterdir()) == []


def test_the_picture_tells_the_counts_apart_without_colour(tmp_path: Path) -> None:
    """S1.3: by number, by word and by hatching."""
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyBboxPatch

    axes = Figure().subplots()
    table.draw(PUBLISHED, axes)
    cells = [patch for patch in axes.patches if isinstance(patch, FancyBboxPatch)]
    counts = [count for row in PUBLISHED.values() for count in row]
    looks = {(count, cell.get_hatch()) for count, cell in zip(counts, cells, strict=True)}
    assert len(looks) == len({hatch for _, hatch in looks}) == 3
    texts = [text.get_text() for text in axes.texts]
    assert texts[::2] == [str(count) for count in counts]
    assert texts[1::2] == [table.MEANING[count] for count in counts]

    table.plot(PUBLISHED, tmp_path / "cuts.png")
    assert (tmp_path / "cuts.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--plot", "cuts.svg"], "ends in .png"),
        (["--plot", "nowhere/cuts.png"], "its directory does not exist"),
        (["--keep", "full"], "new or empty"),
        (["--keep", "full/file"], "new or empty"),
        (["--plot"], "expected one argument"),
        (["--jso"], "unrecognized arguments"),
    ],
)
def test_bad_arguments_are_refused_before_anything_runs(arguments: list[str], message: str, tmp_path: Path) -> None:
    """A wrong name is told at once, not after the runs."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    ended = run(tmp_path, *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "usage:" in ended.stderr
    assert message in " ".join(ended.stderr.split())


def test_a_missing_matplotlib_names_the_extra(tmp_path: Path) -> None:
    """It is needed by --plot alone."""
    (tmp_path / "matplotlib.py").write_text("raise ImportError('not here')\n")
    ended = run(tmp_path, "--plot", "cuts.png", path=str(tmp_path))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "pytest-once-chaos[plot]" in ended.stderr


def test_a_count_that_the_verdict_contradicts_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S1.3: the rows and the engine must agree, or nothing is printed."""
    monkeypatch.setattr(table, "SAYS", {})
    with pytest.raises(table.Unexpected, match="1 reservations, but the verdict is EXACTLY_ONCE"):
        table.cut("outbox-dedup", "end", tmp_path)
