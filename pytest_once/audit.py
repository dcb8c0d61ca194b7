"""The audit: whatever changes or reaches something outside the world without passing a boundary is reported.

The interpreter tells what it is about to do (`sys.addaudithook`): open a file for writing, rename, connect,
start a process. Most of it is announced by a seam, or concerns the world, whose changes the parent compares
(`unannounced`). What is left can be neither pictured nor undone, and each of the many lives would do it again;
so the life ends before it happens.

Not reported, because no later life can find it or because it is no doing of the body:

- what happens inside a seam's call or a `once.tool`: that passed a boundary;
- connections to fake providers, to servers that listen in this process, and to addresses that a seam or a store
  has registered with `allow_connection`;
- files that `tempfile` named, at random and for itself, if they are gone when the body ends. A file with a fixed
  name in the same directory is reported: the next process finds it, be it only a lock;
- byte code that an import writes; what pytest, Hypothesis, coverage and debuggers write; devices and /proc;
- removing what is not there, making a directory that is there already.

Extensions that call the operating system themselves (libpq, gRPC, libuv) are not seen.
"""

from __future__ import annotations

import ipaddress
import os
import shlex
import stat
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from pytest_once import boundaries
from pytest_once.allowance import Allowance, address_name
from pytest_once.site import Site, call_site, is_user_code

Report = Callable[[str, Site], None]
"""Told what happened and where; does not return."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_UNNAMED = getattr(os, "O_TMPFILE", 0)
_HARMLESS_PLACES = ("/dev/fd/", "/dev/pts/", "/proc/")

_INFRASTRUCTURE = frozenset(
    (
        *("_pytest", "pytest", "pluggy", "pytest_timeout", "xdist", "execnet", "hypothesis", "coverage", "pytest_cov"),
        *("debugpy", "pydevd", "_pydevd_bundle", "_pydev_bundle"),
    )
)
"""Packages that run and watch the test: what they do themselves is no doing of the body."""

_QUESTIONS = frozenset({"platform", "uuid", "ctypes.util"})
"""Modules of the standard library that start processes only to ask about the machine."""

_PASSING_ON = frozenset({"pytest_once.boundaries.files", "pytest_once.boundaries.sqlite"})
"""Seams that stand in for a function everybody calls: what they do is done by their caller."""

_ANNOUNCED_BY = ("pytest_once.boundaries", "pytest_once.calls", "pytest_once.once", "pytest_once.ledger", "once_fakes")

_USUAL_REMEDY = "wrap the function that does it with once.tool(fn, counted=False)"

_pid = 0
_roots: list[Path] = []
_own = ""
_prefixes: tuple[str, ...] = ()
_prefixed: list[Path] = []
_allowances: tuple[Allowance, ...] = ()
_report: Report = lambda message, site: None  # noqa: E731
_note_use: Callable[[str], object] = lambda target: None  # noqa: E731
_used: set[str] = set()
_private: dict[str, Site | None] = {}
"""What tempfile named in this life -> where it was asked for, None if nobody need care whether it stays."""
_opening = threading.local()
"""path: the database that this thread is about to connect to."""

_listening: weakref.WeakSet[Any] = weakref.WeakSet()
_connectable: set[str] = set()
_announced: set[object] = set()


def install(
    roots: list[Path], own: Path, allow: Sequence[Allowance], report: Report, note_use: Callable[[str], object]
) -> None:
    """In a forked child, before the body: watch this process, until it ends.

    roots: tracked directories; may grow. own: the directory that the engine itself works in. report: told of what must
    not happen; does not return. note_use: told once of each target that was touched because `allow` names it.
    """
    global _pid, _roots, _own, _allowances, _report, _note_use
    hooked = _pid != 0  # a hook is inherited by a fork, and cannot be taken back
    _pid, _roots, _own = os.getpid(), roots, os.path.join(os.path.realpath(own), "")
    _allowances, _report, _note_use = tuple(allow), report, note_use
    _prefixed.clear()
    _used.clear()
    _private.clear()
    _watch_spawned()
    if not hooked:
        sys.addaudithook(_hook)


def finish() -> None:
    """The body has ended: report a temporary file that it leaves behind."""
    for path, site in list(_private.items()):
        if site is not None and os.path.lexists(path) and not _in_world(path) and not _permitted("file", (path,)):
            _report(
                f"the temporary file or directory {path} is still there when the body has ended. It is below no "
                "tracked directory, so a later run would find what no restart left for it, and exploring leaves one "
                f"for each run. Remove it, or {_how_for_files(path)}",
                site,
            )


@contextmanager
def announced() -> Iterator[None]:
    """What this process does meanwhile, in whichever thread or task, belongs to a boundary that has been passed."""
    one = object()  # not a counter: threads come and go at the same time
    _announced.add(one)
    try:
        yield
    finally:
        _announced.discard(one)


def allow_connection(host: str, port: int | None = None) -> None:
    """Connections there are announced by a seam, or are a tracked service's. host: numeric, or a socket's path."""
    _connectable.add(host if port is None else address_name(host, port))


def permits(kind: str, *names: str) -> bool:
    """For seams that find something outside: whether the test allows it, or the test's own machinery does it."""
    return _is_machinery() or _permitted(kind, names)


# What the interpreter tells.


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    handler = _HANDLERS.get(event)
    if handler is not None:
        handler(*arguments)


def _opens(path: Any, mode: Any, flags: Any) -> None:
    if not flags & _WRITING and (flags or type(mode) is not str or not any(letter in mode for letter in "wxa+")):
        return
    if isinstance(path, int) or (_UNNAMED and flags & _UNNAMED == _UNNAMED):
        return
    full = _full(path)
    if full is None or not _watching() or os.path.isdir(full):
        return  # tempfile first opens a directory; what it really opens is in there
    if flags & os.O_EXCL if os.path.lexists(full) else not flags & os.O_CREAT:
        return  # it will fail
    _changes(full, os.path.realpath(full), "opened for writing")


def _renames(source: Any, target: Any, source_fd: int = -1, target_fd: int = -1) -> None:
    _changes_entry(source, source_fd, "renamed")
    _changes_entry(target, target_fd, "replaced by a rename", must_exist=False)


def _removes(path: Any, directory: int = -1) -> None:
    _changes_entry(path, directory, "removed")


def _makes(path: Any, _mode: int, directory: int = -1) -> None:
    full = _full(path, directory)
    if full is not None and not os.path.lexists(full):
        _changes_entry(path, directory, "created", must_exist=False)


def _links(_source: Any, target: Any, *directories: int) -> None:
    _changes_entry(target, directories[-1] if directories else -1, "created", must_exist=False)


def _alters(path: Any, *_rest: Any) -> None:
    _changes_entry(path, -1, "changed")


def _names_temporary(path: Any) -> None:
    # What is there already is another life's: tempfile will try another name.
    if _watching() and (full := _full(path)) is not None and not os.path.lexists(full):
        _private[_entry(full)] = None if _is_machinery() else call_site()


def _connects(sock: Any, address: Any) -> None:
    if address is None or not _watching():
        return
    names = _address_names(address)
    if names is None or not _connectable.isdisjoint(names) or _is_fake(names) or _listens_here(address):
        return
    if _is_machinery() or _permitted("socket", names):
        return
    _report(
        f"a connection to {names[0]} was about to be used past every boundary: what is said there can be neither "
        "counted nor undone, no crash was tried around it, and each of the many runs would say it again. Use a client "
        f"that the seams know, with the address of a fake (once.provider(...).url); {_USUAL_REMEDY}; or, if no effect "
        f'and no decision depends on it, allow=("socket:{names[0]}",)',
        call_site(),
    )


def _binds(sock: Any, _address: Any) -> None:
    _listening.add(sock)


def _starts(executable: Any, arguments: Any = (), *_rest: Any) -> None:
    if not _watching() or _asks_about_the_machine():
        return
    words = [
        _text(word) for word in ([arguments] if isinstance(arguments, (str, bytes, os.PathLike)) else arguments or ())
    ]
    program = _text(executable if executable is not None else words[0])
    line = shlex.join(words or [program])
    names = [os.path.basename(program), program, line]
    if words[1:2] == ["-c"] and os.path.basename(program) in ("sh", "bash", "dash"):
        line = words[2]
        names = [*line.split()[:1], line, *names]
    _starts_process(line, names)


def _runs_shell(command: Any) -> None:
    if _watching():
        line = _text(command)
        _starts_process(line, [os.path.basename(line.split()[0]) if line.split() else "sh", line])


def _forks(*_nothing: Any) -> None:
    if _watching():
        _starts_process("a copy of this process (os.fork, multiprocessing)", ["fork"], "fork")


def _starts_process(shown: str, names: Sequence[str], allowed_as: str = "") -> None:
    if _is_machinery() or _permitted("process", names):
        return
    brief = shown if len(shown) <= 80 else shown[:77] + "..."
    _report(
        f"another process was about to be started past every boundary: {brief}. What it does can be neither counted "
        "nor undone, no crash was tried around it, and each of the many runs would start it again. "
        f"{_USUAL_REMEDY[0].upper()}{_USUAL_REMEDY[1:]}, or put a fake in its place; or, if no effect and no decision "
        f'depends on it, allow=("process:{allowed_as or names[0]}",)',
        call_site(),
    )


def _names_database(database: Any) -> None:
    _opening.path = _text(database)


def _connects_database(connection: Any) -> None:
    path = getattr(_opening, "path", None)
    if path is None or not _watching() or hasattr(type(connection), "_once_begin_watching"):
        return
    if path in ("", ":memory:") or "mode=memory" in path or "mode=ro" in path or "immutable=1" in path:
        return
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == "pytest_once.boundaries.sqlite":
            return  # made by the user's factory for the seam, which watches it
        frame = frame.f_back
    if _is_machinery():
        return
    full = os.path.realpath(path.removeprefix("file:").partition("?")[0] if path.startswith("file:") else path)
    if full.startswith(_own) and not _in_world(full):
        return
    if not _permitted("file", (full,)):
        _report(
            f"the database {full} was opened by a connection that announces nothing (sqlite3.Connection called "
            "directly), so no crash would be tried around its commits. Open it with sqlite3.connect(...), which also "
            f'takes factory=; or, if nothing in it matters, allow=("file:{full}",)',
            call_site(),
        )


_HANDLERS: dict[str, Callable[..., None]] = {
    "open": _opens,
    "os.rename": _renames,
    "os.remove": _removes,
    "os.rmdir": _removes,
    "os.mkdir": _makes,
    "os.link": _links,
    "os.symlink": _links,
    "os.truncate": _alters,
    "os.chmod": _alters,
    "os.chown": _alters,
    "tempfile.mkstemp": _names_temporary,
    "tempfile.mkdtemp": _names_temporary,
    "socket.connect": _connects,
    "socket.sendto": _connects,
    "socket.sendmsg": _connects,
    "socket.bind": _binds,
    "subprocess.Popen": _starts,
    "os.exec": _starts,
    "os.posix_spawn": _starts,
    "os.system": _runs_shell,
    "os.fork": _forks,
    "os.forkpty": _forks,
    "sqlite3.connect": _names_database,
    "sqlite3.connect/handle": _connects_database,
}


def _watch_spawned() -> None:
    """multiprocessing starts fresh interpreters through a function that tells nothing."""
    import _posixsubprocess

    original = _posixsubprocess.fork_exec

    def fork_exec(arguments: Any, *rest: Any) -> Any:
        if _watching() and not _asks_about_the_machine():
            _starts_process("a fresh interpreter (multiprocessing)", ["spawn"], "spawn")
        return original(arguments, *rest)

    _posixsubprocess.fork_exec = fork_exec


# Whether it matters.


def _watching() -> bool:
    """Whether this process is a life that is being lived, outside of what was announced."""
    return not _announced and boundaries.connected() is not None and os.getpid() == _pid


def _full(path: Any, directory: int = -1) -> str | None:
    try:
        text = os.fsdecode(path)
    except TypeError:
        return None  # the real function says what is wrong with it, or it is a descriptor
    if directory >= 0 and not os.path.isabs(text):
        try:
            text = os.path.join(os.readlink(f"/proc/self/fd/{directory}"), text)
        except OSError:
            return None
    return os.path.abspath(text)


def _changes_entry(path: Any, directory: int, what: str, *, must_exist: bool = True) -> None:
    """A name in a directory changes; it may itself be a link, which is not followed."""
    if not _watching() or (full := _full(path, directory)) is None or (must_exist and not os.path.lexists(full)):
        return
    _changes(full, _entry(full), what)


def _entry(full: str) -> str:
    """The path with all links resolved except itself."""
    return os.path.join(os.path.realpath(os.path.dirname(full)), os.path.basename(full))


def _changes(full: str, real: str, what: str) -> None:
    if _in_world(real) or real.startswith((_own, *_HARMLESS_PLACES)) or _is_private(real) or _is_device(real):
        return
    if _is_machinery() or _permitted("file", (real, full)):
        return
    _report(
        f"{real} was about to be {what}: it is below no tracked directory, so the change can be neither pictured nor "
        "undone, and would leak from one run into the next. Put it below tmp_path or once.path, or "
        f"{_how_for_files(real)}",
        call_site(),
    )


def _how_for_files(path: str) -> str:
    return (
        f"call once.track(its directory) at the beginning; {_USUAL_REMEDY}; or, if no decision depends on it (a log), "
        f'allow=("file:{path}",)'
    )


def _in_world(real: str) -> bool:
    global _prefixes
    if _prefixed != _roots:
        _prefixed[:] = _roots
        _prefixes = tuple(os.path.join(os.path.realpath(root), "") for root in _roots)
    return real.startswith(_prefixes) or os.path.join(real, "") in _prefixes


def _is_private(real: str) -> bool:
    """Whether tempfile named it in this life, or the directory it is in."""
    if not _private:
        return False
    while real not in _private:
        parent = os.path.dirname(real)
        if parent == real:
            return False
        real = parent
    return True


def _is_device(real: str) -> bool:
    try:
        return stat.S_ISCHR(os.stat(real).st_mode)
    except OSError:
        return False


def _permitted(kind: str, names: Sequence[str]) -> bool:
    if not any(allowance.matches(kind, names) for allowance in _allowances):
        return False
    target = f"{kind}:{names[0]}"
    if target not in _used:
        _used.add(target)
        _note_use(target)
    return True


def _is_machinery() -> bool:
    """Whether a seam, an import, or what runs the test does this, and not the body or a library for it."""
    frame: FrameType | None = sys._getframe(1)
    library = ""
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if name.startswith(("pytest_once", "once_fakes")):
            if name != __name__ and name not in _PASSING_ON:
                return name.startswith(_ANNOUNCED_BY)
        elif is_user_code(frame.f_code):
            return False
        elif not library:
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                return True
            top = name.partition(".")[0]
            if top not in sys.stdlib_module_names:
                library = top
                if top in _INFRASTRUCTURE:
                    return True
        frame = frame.f_back
    return False


def _asks_about_the_machine() -> bool:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__")
        if name not in (__name__, "subprocess", "os"):
            return name in _QUESTIONS
        frame = frame.f_back
    return False


def _address_names(address: Any) -> list[str] | None:
    """The ways to write an address, the usual one first; None for families that reach nobody else (netlink)."""
    if isinstance(address, (str, bytes)):
        return [_text(address)]
    if not isinstance(address, tuple) or len(address) < 2 or not isinstance(address[0], str):
        return None
    host, port = address[0] or "127.0.0.1", int(address[1])
    names = [address_name(host, port)]
    if _is_loopback(host):
        names.append(f"localhost:{port}")
    return names


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _is_fake(names: Sequence[str]) -> bool:
    """Whether a fake provider answers there; that its requests pass a boundary is checked against its ledger."""
    return any(prefix.partition("://")[2].partition("/")[0] in names for prefix in boundaries.endpoint_prefixes())


def _listens_here(address: Any) -> bool:
    """Whether a socket of this process is bound there."""
    for sock in list(_listening):
        try:
            bound = sock.getsockname()
        except OSError:
            continue  # closed
        if bound == address:
            return True
        if (
            isinstance(bound, tuple)
            and isinstance(address, tuple)
            and bound[1] == address[1]
            and _is_loopback(address[0])
        ):
            return True
    return False


def _text(value: Any) -> str:
    try:
        return os.fsdecode(value)
    except TypeError:
        return str(value)
