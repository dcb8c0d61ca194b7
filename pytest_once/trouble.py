"""Lives that can say nothing: hung, dead by themselves, looping, misused. And how that is told."""

from __future__ import annotations

import re

from pytest_once.boundaries import Boundary
from pytest_once.checks import Verdict
from pytest_once.evidence import Evidence
from pytest_once.faults import KINDS, LOST_RESPONSE, RESET_RESPONSE, STALE_READ
from pytest_once.incarnation import Died, Hung, Misuse
from pytest_once.life import Life, Looped
from pytest_once.site import is_own_file, is_user_file


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


def parting(one: Life, other: Life) -> int:
    """The first boundary, by number, at which two lives differ; the end of the shorter one counts as a difference."""
    pairs = enumerate(zip(one.boundaries, other.boundaries, strict=False))
    return next((i for i, (a, b) in pairs if a.anchor != b.anchor), min(len(one.passages), len(other.passages)))


def last_place(life: Life) -> str:
    """Where a life was last heard of, in words."""
    return f"after {named(life, len(life.passages) - 1)}" if life.passages else "before its first boundary"


def hung_message(hung: Hung, life: Life) -> str:
    """What to tell about a silent incarnation."""
    stack = f"\nIts threads were at:\n{_down_to_user_code(hung.stack)}" if hung.stack else ""
    return (
        f"an incarnation was silent for {hung.seconds:g}s {last_place(life)} and was killed. Likely causes: a wait "
        "without a time-out, or with a long one (it takes its real time); a lock, thread pool, event loop or aiosqlite "
        "connection made before the incarnation (module or session fixture: make it function-scoped); a loop on the "
        f"clock without sleeping (time is virtual and moves by sleeps and boundaries).{stack}"
    )


def _down_to_user_code(stack: str) -> str:
    """A dump of faulthandler (innermost call first) without the frames that called the user's code."""
    kept: list[str] = []
    for thread in re.split(r"\n\s*\n", stack):
        lines = thread.splitlines()
        files = [(re.search(r'File "(.+?)", line', line) or ("", ""))[1] for line in lines]
        users = [number for number, file in enumerate(files) if file and is_user_file(file)]
        ours = [number for number, file in enumerate(files) if users and number > users[0] and is_own_file(file)]
        last = max((number for number in users if not ours or number < ours[0]), default=len(lines) - 1)
        kept += lines[: last + 1]
    return "\n".join(kept)


def died_message(died: Died, life: Life) -> str:
    """What to tell about an incarnation that went away by itself."""
    return (
        f"an incarnation ended by itself ({died.how}) {last_place(life)}, without saying how the call went. "
        "os._exit, a fatal signal or a crashing extension cannot be judged: let the body return or raise, and leave "
        "the killing to the explorer"
    )


def progressing_message(looped: Looped) -> str:
    """What to tell about an incarnation that goes on and on."""
    return (
        f"an incarnation passed {looped.boundaries} boundaries and was still making new states; give the loop a "
        "limit in the code, or a smaller job in the test"
    )


def check_announced(evidence: Evidence, life: Life, number: int) -> None:
    """Raise Unexplorable if more requests of a life (0 for the first) reached a provider than its boundaries tell."""
    if life.last is None:
        return
    arrived = evidence.arrivals(life.last, number + 1)
    for passage in life.passages:
        provider = passage.boundary.provider
        if provider in arrived and _arrives(passage.boundary):
            arrived[provider] -= KINDS[passage.fault].arrivals if passage.fault in KINDS else 1
    for provider, unannounced in arrived.items():
        for passage, after in zip(life.passages, life.sights[1:], strict=True):
            if unannounced > 0 and passage.boundary.kind == "tool" and passage.boundary.provider not in arrived:
                # A tool that is not counted may send what it likes.
                if passage.sight is None or after is None:
                    return
                ends = (evidence.arrivals(sight, number + 1).get(provider, 0) for sight in (after, passage.sight))
                unannounced -= next(ends) - next(ends)
        if unannounced > 0:
            raise Unexplorable(
                Verdict.ESCAPED_EFFECT,
                f"{provider!r} received a request that passed no boundary ({unannounced} more than were announced), so "
                "no crash and no fault was tried around it. Its client is none of those the seams know (httpx, "
                "requests, urllib3, aiohttp, boto3 and others): use one of them, wrap the function that sends it with "
                "once.tool(fn, counted=False), or give its library a seam (hook pytest_once_boundaries)",
            )


def _arrives(boundary: Boundary) -> bool:
    """Whether a provider notes an arrival there; a question leaves none, nor a connection alone."""
    answered = LOST_RESPONSE in boundary.faults or RESET_RESPONSE in boundary.faults
    return answered and STALE_READ not in boundary.faults and boundary.kind != "provider"


def misuse_verdict(misuse: Misuse) -> Verdict:
    """What a misuse of the world is called in a report."""
    return Verdict.ESCAPED_EFFECT if misuse.code == "outside" else Verdict.INCONCLUSIVE
