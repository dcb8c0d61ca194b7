"""How far a long exploration has come, on one line of a terminal that is rewritten in place."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from pytest_once.events import Event, Progress, ViolationFound

FIRST_AFTER_S = 0.3
"""An exploration shorter than this shows nothing: a line that only flickers helps nobody."""
EVERY_S = 0.1


@dataclass(slots=True)
class ProgressLine:
    """A listener that writes below the line on which pytest stands, and leaves no trace when it is cleared.

    write: to the terminal, at once. columns: its width. at: how many columns of the current line are written.
    now_s: seconds of any clock that does not go back.
    """

    write: Callable[[str], None]
    columns: int
    at: int = 0
    now_s: Callable[[], float] = time.monotonic
    _began_s: float = field(init=False)
    _shown_s: float | None = None
    _violations: int = 0

    def __post_init__(self) -> None:
        self._began_s = self.now_s()

    def __call__(self, event: Event) -> None:
        if isinstance(event, ViolationFound):
            self._violations += 1
        if not isinstance(event, Progress):
            return
        now_s = self.now_s()
        if now_s - self._began_s < FIRST_AFTER_S or (self._shown_s is not None and now_s - self._shown_s < EVERY_S):
            return
        # A new line may scroll the screen; after that the one above is where pytest goes on.
        first = "\n\x1b[A" if self._shown_s is None else ""
        self.write(first + self._below(self._told(event, now_s - self._began_s)))
        self._shown_s = now_s

    def clear(self) -> None:
        """Remove the line, if there is one."""
        if self._shown_s is not None:
            self.write(self._below(""))
            self._shown_s = None

    def _below(self, text: str) -> str:
        return f"\x1b[B\r\x1b[2K{text}\x1b[A\x1b[{self.at + 1}G"

    def _told(self, progress: Progress, elapsed_s: float) -> str:
        parts = [
            f"exploring: {progress.states} states",
            f"{progress.runs} runs",
            f"{progress.waiting} waiting",
            f"{elapsed_s:.0f} s",
        ]
        if self._violations:
            parts.append(f"{self._violations} violations")
        while len(", ".join(parts)) >= self.columns and len(parts) > 1:
            parts.pop()
        return ", ".join(parts)[: self.columns - 1]
