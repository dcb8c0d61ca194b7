"""Where in the user's code something happened: file, line, function, and the text of the line.

A site is what a report prints and what makes a schedule survive unrelated edits: its *anchor* is the
function's name and the line's text, never the line number.
"""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
import threading
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any


@dataclass(frozen=True, slots=True)
class Site:
    """A place in source code.

    file: absolute path; line: 1-based; function: qualified name; text: the line, stripped.
    """

    file: str
    line: int
    function: str
    text: str

    @property
    def anchor(self) -> str:
        """What identifies the place across edits elsewhere in the file."""
        return f"{os.path.basename(self.file)}|{self.function}|{self.text}"

    def __str__(self) -> str:
        return f"{shown_path(self.file)}:{self.line}"


def shown_path(file: str) -> str:
    """The path as a person in the current directory would write it."""
    relative = os.path.relpath(file)
    return file if relative.startswith("..") else relative


NOWHERE = Site("<unknown>", 0, "<unknown>", "")

_OWN = tuple(
    os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), part) + os.sep
    for part in ("pytest_once", "once_fakes", os.path.join("fakes", "once_fakes"))
)
_LIBRARY = tuple(
    sorted(
        {
            os.path.realpath(path) + os.sep
            for name in ("stdlib", "platstdlib", "purelib", "platlib")
            if (path := sysconfig.get_paths().get(name))
        }
    )
)
_is_user_code: dict[str, bool] = {}


def is_user_code(code: CodeType) -> bool:
    """Whether the code belongs to the person testing, not to a library, the interpreter or us."""
    return is_user_file(code.co_filename)


def is_own_file(file: str) -> bool:
    """Whether a file belongs to this project."""
    return file.startswith(_OWN)


def is_user_file(file: str) -> bool:
    """The same for a file's name, as code objects and tracebacks give it."""
    known = _is_user_code.get(file)
    if known is None:
        known = not (
            file.startswith("<")
            or file.startswith(_OWN)
            or f"{os.sep}site-packages{os.sep}" in file
            or file.startswith(_LIBRARY)
            or os.path.realpath(file).startswith(_LIBRARY)
        )
        _is_user_code[file] = known
    return known


def call_site() -> Site:
    """The innermost frame of user code that led here.

    In a worker thread with no user code of its own (aiosqlite's), the coroutine that waits for it is meant.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_user_code(frame.f_code):
            return _site_of(frame)
        frame = frame.f_back
    if threading.current_thread() is not threading.main_thread():
        return _site_of_waiting_coroutine()
    return NOWHERE


def _site_of(frame: FrameType) -> Site:
    code = frame.f_code
    file = os.path.abspath(code.co_filename)
    text = linecache.getline(file, frame.f_lineno).strip()
    return Site(file, frame.f_lineno, code.co_qualname, text)


def _site_of_waiting_coroutine() -> Site:
    # Read before anything else: these frames are the thread's own and hold the future it will complete.
    promised = _futures_in(sys._getframe(1))
    main = sys._current_frames().get(threading.main_thread().ident or 0)
    found: FrameType | None = None
    frame = main
    while frame is not None:
        loop = frame.f_locals.get("self")
        if frame.f_code.co_name == "run_forever" and loop is not None:
            import asyncio

            tasks = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
            # Whoever waits for just that future comes last, and so is taken.
            tasks.sort(key=lambda task: id(getattr(task, "_fut_waiter", None)) in promised)
            for task in tasks:
                found = _innermost_user_frame(task.get_coro()) or found
            break
        frame = frame.f_back
    if found is None:
        while main is not None and not is_user_code(main.f_code):
            main = main.f_back
        found = main
    return _site_of(found) if found is not None else NOWHERE


def _futures_in(frame: FrameType | None) -> set[int]:
    """Ids of the asyncio futures that the frames, this one and outwards, have in local variables."""
    import asyncio

    found: set[int] = set()
    while frame is not None:
        found.update(id(value) for value in list(frame.f_locals.values()) if asyncio.isfuture(value))
        frame = frame.f_back
    return found


def _innermost_user_frame(awaited: Any) -> FrameType | None:
    found: FrameType | None = None
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is not None and is_user_code(frame.f_code):
            found = frame
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return found
