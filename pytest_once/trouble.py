"""Lives that can say nothing: hung, dead by themselves, looping, misused. And how that is told."""

from __future__ import annotations

from pytest_once.checks import Verdict
from pytest_once.incarnation import Died, Hung, Misuse
from pytest_once.life import Life, Looped


class Unexplorable(Exception):
    """The exploration cannot go on; the message says why and what to do. verdict: what to report."""

    def __init__(self, verdict: Verdict, message: str, traceback: str = "", skipped: str | None = None) -> None:
        super().__init__(message)
        self.verdict = verdict
        self.traceback = traceback
        self.skipped = skipped


def named(life: Life, index: int) -> str:
    """A boundary of a life, by number, as a person would point at it."""
    if index >= len(life.passages):
        return "the end"
    boundary = life.passages[index].boundary
    return f"{boundary.target} at {boundary.site}"


def last_place(life: Life) -> str:
    """Where a life was last heard of, in words."""
    return f"after {named(life, len(life.passages) - 1)}" if life.passages else "before its first boundary"


def hung_message(hung: Hung, life: Life) -> str:
    """What to tell about a silent incarnation."""
    stack = f"\nIts threads were at:\n{hung.stack}" if hung.stack else ""
    return (
        f"an incarnation was silent for {hung.seconds:g}s {last_place(life)} and was killed. Likely causes: a wait "
        "without a time-out; a lock, thread pool, event loop or aiosqlite connection made before the incarnation "
        "(module or session fixture: make it function-scoped); a loop on the clock without sleeping (time is "
        f"virtual and moves by sleeps and boundaries).{stack}"
    )


def died_message(died: Died, life: Life) -> str:
    """What to tell about an incarnation that went away by itself."""
    return (
        f"an incarnation ended by itself ({died.how}) {last_place(life)}, without saying how the call went. "
        "os._exit, a fatal signal or a crashing extension cannot be judged: let the body return or raise, and leave the "
        "killing to the explorer"
    )


def progressing_message(looped: Looped) -> str:
    """What to tell about an incarnation that goes on and on."""
    return (
        f"an incarnation passed {looped.boundaries} boundaries and was still making new states; give the loop a "
        "limit in the code, or a smaller job in the test"
    )


def misuse_verdict(misuse: Misuse) -> Verdict:
    """What a misuse of the world is called in a report."""
    return Verdict.ESCAPED_EFFECT if misuse.code == "outside" else Verdict.INCONCLUSIVE
