"""The file seam: changes of files below the tracked directories are announced before they happen.

Renames, removals, links and directories are announced call by call; a file opened for writing before it is
created or truncated, before what was buffered is written out (flush, or a full buffer), and before it is
closed. Paths elsewhere cost one comparison. SQLite opens its files without Python and is not seen here.

A replacement, a rename, a sync, a flush and a close can be ordered to fail: with nothing applied, because the disk
is full (ENOSPC) or read-only (EROFS), or applied although an error is reported (EIO). As in reality a close that fails
has closed the file, and what was still in its buffer is lost; after a flush that fails it is still there; and a
file that is only dropped loses it without a word.

What is changed here gets its modification time from the virtual clock, so that code which asks how old a file is
compares like with like. A time that code sets itself stays; setting one is announced as any other change.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import re
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pytest_once import filetimes
from pytest_once.boundaries import announce
from pytest_once.boundaries.rebinding import Reference, rebind
from pytest_once.faults import COMMIT_UNKNOWN, STORE_FULL, STORE_READONLY

FILE_FAULTS = (STORE_FULL, STORE_READONLY, COMMIT_UNKNOWN)
_ERRORS = {STORE_FULL: errno.ENOSPC, STORE_READONLY: errno.EROFS, COMMIT_UNKNOWN: errno.EIO}

_PASSING = re.compile(
    r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|(?<=tmp)_?[a-z0-9_]{8}|(?<![0-9A-Za-z])(?=[a-f]*[0-9])[0-9a-f]{16,}"
)
"""Parts of names that differ from run to run: UUIDs, tempfile's names, long hexadecimal tokens."""

_original_open = io.open
_PATH_CALLS = ("remove", "unlink", "truncate", "mkdir", "rmdir")
_PAIR_CALLS = ("replace", "rename", "link", "symlink")
_SYNCS = tuple(name for name in ("fsync", "fdatasync") if hasattr(os, name))
_DESCRIPTOR_CALLS = ("ftruncate", "write", "close")
_WRITING_FLAGS = os.O_CREAT | os.O_TRUNC
_originals: dict[str, Callable[..., Any]] = {
    name: getattr(os, name) for name in (*_PATH_CALLS, *_PAIR_CALLS, *_SYNCS, *_DESCRIPTOR_CALLS, "open", "utime")
}

_roots: tuple[str, ...] = ()
_descriptors: dict[int, str] = {}
"""Open descriptors of tracked files, and how announcements name these."""


def originals() -> tuple[object, ...]:
    """What `install()` replaces: the parent looks for early references to these."""
    return (_original_open, *_originals.values())


def install(roots: Sequence[Path], early: Sequence[Reference] = ()) -> None:
    """Announce file changes below the roots from now on; for a forked child only."""
    global _roots
    _roots = ()
    for root in roots:
        add_root(root)
    _descriptors.clear()
    for name, replacement in _REPLACEMENTS.items():
        rebind(early, _originals[name], replacement)
        setattr(os, name, replacement)
        # Some functions of os look for themselves in these sets of what the platform supports.
        for supported in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
            if _originals[name] in supported:
                supported.add(replacement)
    rebind(early, _original_open, _open)
    patched: Any = _open
    io.open = builtins.open = patched


def add_root(directory: Path) -> None:
    """Track one more directory from now on."""
    global _roots
    ways = {os.path.join(way(os.fspath(directory)), ""): None for way in (os.path.abspath, os.path.realpath)}
    _roots = (*_roots, *(way for way in ways if way not in _roots))


def _tracked(path: Any, directory: int | None = None) -> str | None:
    """How to name the path relative to the root that contains it; None if no root does."""
    try:
        text = os.fsdecode(path)
    except TypeError:
        return None  # the real function says what is wrong with it
    if not os.path.isabs(text) and directory is not None:
        base = _descriptors.get(directory) or _directory_of(directory)
        if base is None:
            return None
        text = os.path.join(base, text)
    full = os.path.abspath(text)
    for root in _roots:
        if full.startswith(root):
            return _PASSING.sub("*", full[len(root) :]).replace(str(os.getpid()), "*")
    return None


def _set_time(target: Any, directory: int | None = None) -> None:
    """Modified now, on the virtual clock. target: path or descriptor."""
    now_ns = filetimes.at(time.time())
    with suppress(OSError):  # it may be somebody else's
        _originals["utime"](target, ns=(now_ns, now_ns), dir_fd=directory)


def _set_time_above(path: Any, directory: int | None = None) -> None:
    """The directory that holds the path was modified now: it has one entry more, or one less, or another."""
    text = os.fsdecode(path)
    if not os.path.isabs(text) and directory is not None:
        text = os.path.join(_directory_of(directory) or "", text)
    above = os.path.dirname(os.path.abspath(text))
    if any(above.startswith(root) for root in _roots):
        _set_time(above)


def _directory_of(descriptor: int) -> str | None:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return None


def _ordered_to_fail(what: str) -> str | None:
    """Announce a change that can fail; returns how, if it is to."""
    return announce("file", what, faults=FILE_FAULTS).fault


def _error(fault: str, *paths: Any) -> OSError:
    """What the system call would raise. paths: the one or two it was given, if any."""
    number = _ERRORS[fault]
    if len(paths) == 2:
        return OSError(number, os.strerror(number), paths[0], None, paths[1])
    return OSError(number, os.strerror(number), *paths)


def _path_call(name: str) -> Callable[..., Any]:
    original = _originals[name]

    def call(path: Any, *, dir_fd: int | None = None) -> Any:
        shown = _tracked(path, dir_fd)
        if shown is not None and _exists(path, dir_fd):
            announce("file", f"{'remove' if name == 'unlink' else name} {shown}")
        result = original(path, dir_fd=dir_fd)
        if shown is not None:
            _set_time_above(path, dir_fd)
        return result

    return call


def _exists(path: Any, dir_fd: int | None) -> bool:
    try:
        os.lstat(path, dir_fd=dir_fd)
    except OSError:
        return False
    return True


def _mkdir(path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
    shown = _tracked(path, dir_fd)
    if shown is not None and not _exists(path, dir_fd):
        announce("file", f"mkdir {shown}")
    _originals["mkdir"](path, mode, dir_fd=dir_fd)
    if shown is not None:
        _set_time(path, dir_fd)
        _set_time_above(path, dir_fd)


def _pair_call(name: str) -> Callable[..., Any]:
    original = _originals[name]

    def call(src: Any, dst: Any, *positional: Any, **named: Any) -> Any:
        into = named.get("dst_dir_fd", named.get("dir_fd"))
        shown = _tracked(dst, into)
        if shown is None and name in ("replace", "rename"):
            shown = _tracked(src, named.get("src_dir_fd"))  # moved out of the world
        fault = None
        if shown is not None:
            if name in ("replace", "rename"):
                fault = _ordered_to_fail(f"{name} {shown}")
            else:
                announce("file", f"{name} {shown}")
        if fault in (None, COMMIT_UNKNOWN):
            original(src, dst, *positional, **named)
            if shown is not None:
                _set_time_above(dst, into)
                if name in ("replace", "rename"):
                    _set_time_above(src, named.get("src_dir_fd"))
                    _mend_time(dst, into)  # it may come from outside of the world
        if fault is not None:
            raise _error(fault, src, dst)

    return call


def _mend_time(target: Any, directory: int | None = None) -> None:
    """Modified now, if the operating system has given it the real time. target: path or descriptor."""
    with suppress(OSError):
        status = os.fstat(target) if isinstance(target, int) else os.lstat(target, dir_fd=directory)
        if filetimes.is_real(status.st_mtime_ns) and not stat.S_ISLNK(status.st_mode):
            _set_time(target, directory)


def _utime(path: Any, times: Any = None, **named: Any) -> None:
    known = isinstance(path, int)
    shown = _descriptors.get(path) if known else _tracked(path, named.get("dir_fd"))
    if shown is not None and (known or _exists(path, named.get("dir_fd"))):
        announce("file", f"utime {shown}")
        if times is None and "ns" not in named:
            now_ns = filetimes.at(time.time())
            named["ns"] = (now_ns, now_ns)
    if "ns" in named and times is None:
        _originals["utime"](path, **named)
    else:
        _originals["utime"](path, times, **named)


def _sync(name: str) -> Callable[[Any], None]:
    original = _originals[name]

    def sync(fd: Any) -> None:
        shown = _descriptors.get(fd if isinstance(fd, int) else fd.fileno())
        if shown is None:
            original(fd)
        else:
            # The real one only matters when the machine dies, and takes longer than all the rest.
            if fault := _ordered_to_fail(f"{name} {shown}"):
                raise _error(fault)

    return sync


def _truncate(path: Any, length: int) -> None:
    shown = _descriptors.get(path) if isinstance(path, int) else _tracked(path)
    if shown is not None:
        announce("file", f"truncate {shown}")
    _originals["truncate"](path, length)
    if shown is not None:
        _set_time(path)


def _ftruncate(fd: int, length: int, /) -> None:
    if fd in _descriptors:
        announce("file", f"truncate {_descriptors[fd]}")
    _originals["ftruncate"](fd, length)
    if fd in _descriptors:
        _set_time(fd)


def _write(fd: int, data: Any, /) -> int:
    if fd in _descriptors:
        announce("file", f"write {_descriptors[fd]}")
    written: int = _originals["write"](fd, data)
    if fd in _descriptors:
        _set_time(fd)
    return written


def _close(fd: int) -> None:
    _descriptors.pop(fd, None)  # os.write has nothing left to write out
    _originals["close"](fd)


def _os_open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
    shown = _tracked(path, dir_fd) if flags & (os.O_WRONLY | os.O_RDWR | _WRITING_FLAGS) else None
    created = shown is not None and bool(flags & os.O_CREAT) and not _exists(path, dir_fd)
    changes = created or (shown is not None and bool(flags & os.O_TRUNC))
    if changes:
        announce("file", f"open {shown}")
    fd: int = _originals["open"](path, flags, mode, dir_fd=dir_fd)
    if shown is not None:
        _descriptors[fd] = shown
    if changes:
        _set_time(fd)
    if created:
        _set_time_above(path, dir_fd)
    return fd


_REPLACEMENTS: dict[str, Callable[..., Any]] = {
    "open": _os_open,
    "truncate": _truncate,
    "ftruncate": _ftruncate,
    "write": _write,
    "close": _close,
    "mkdir": _mkdir,
    "utime": _utime,
    **{name: _path_call(name) for name in ("remove", "unlink", "rmdir")},
    **{name: _pair_call(name) for name in _PAIR_CALLS},
    **{name: _sync(name) for name in _SYNCS},
}


def _open(
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Any = None,
) -> Any:
    def really() -> Any:
        return _original_open(file, mode, buffering, encoding, errors, newline, closefd, opener)

    if not any(letter in str(mode) for letter in "wxa+"):
        return really()
    if opener is not None or isinstance(file, int):
        # An opener calls os.open, which announces by itself; `file` may then be only a directory (tempfile).
        opened = really()
        shown = _descriptors.get(opened.fileno())
        return opened if shown is None else _announcing(opened, shown, True, newline)
    shown = _tracked(file)
    if shown is None:
        return really()
    exists = os.path.exists(file)
    fresh = "w" in mode or not exists
    if not fresh or "r" in mode:
        return _announcing(really(), shown, fresh, newline)
    announce("file", f"open {shown}")
    opened = really()
    _set_time(opened.fileno())
    if not exists:
        _set_time_above(file)
    return _announcing(opened, shown, fresh, newline)


class _Announcing:
    """Mixed into the classes of file objects. pending: closing changes the file; dirty: flushing does."""

    _once_shown = ""
    _once_by_line = False
    _once_pending = False
    _once_dirty = False
    _once_closing = False
    _once_since_announced = 0

    def _once_size(self: Any, data: Any) -> int:
        """Bytes that writing `data` puts into the buffer."""
        if not isinstance(data, str):
            return memoryview(data).nbytes
        return len(data) if data.isascii() else len(data.encode(self.encoding, self.errors or "strict"))

    def write(self: Any, data: Any, /) -> int:
        self._once_since_announced += self._once_size(data)
        full = self._once_since_announced >= io.DEFAULT_BUFFER_SIZE
        through = full or isinstance(self, io.RawIOBase) or (self._once_by_line and "\n" in data)
        if through:
            self._once_since_announced = 0
            announce("file", f"write {self._once_shown}")
        self._once_pending = self._once_dirty = True
        parent: Any = super()
        written: int = parent.write(data)
        if through:
            _set_time(self.fileno())
        return written

    def flush(self: Any) -> None:
        if self._once_dirty and not self._once_closing:
            fault = _ordered_to_fail(f"flush {self._once_shown}")
            if fault not in (None, COMMIT_UNKNOWN):
                raise _error(fault)
            self._once_pending = self._once_dirty = False
            self._once_since_announced = 0
            parent: Any = super()
            parent.flush()
            _set_time(self.fileno())
            if fault is not None:
                raise _error(fault)
        else:
            parent = super()
            parent.flush()

    def close(self: Any) -> None:
        fault = None
        if not self._once_closing and not self.closed:
            self._once_closing = True
            if self._once_pending:
                fault = _ordered_to_fail(f"close {self._once_shown}")
            if fault not in (None, COMMIT_UNKNOWN):
                _lose_what_comes(self.fileno())
            elif self._once_pending:
                self._once_write_out()
            _descriptors.pop(self.fileno(), None)
        parent: Any = super()
        parent.close()
        if fault is not None:
            raise _error(fault)

    def _once_write_out(self: Any) -> None:
        """What closing would write, while there is a descriptor to give the file its time by."""
        if self._once_dirty:
            parent: Any = super()
            with suppress(OSError):  # closing tries again, and says so
                parent.flush()
                _set_time(self.fileno())
        else:
            _mend_time(self.fileno())  # its descriptor may have been written to, as shutil does


def _lose_what_comes(fd: int) -> None:
    """Let the descriptor take what is written to it from now on, and the file not have it."""
    nowhere = _originals["open"](os.devnull, os.O_WRONLY)
    os.dup2(nowhere, fd, os.get_inheritable(fd))
    _originals["close"](nowhere)


class _Text(_Announcing, io.TextIOWrapper):
    pass


class _Writer(_Announcing, io.BufferedWriter):
    pass


class _Random(_Announcing, io.BufferedRandom):
    pass


class _Raw(_Announcing, io.FileIO):
    pass


_KINDS: dict[type, Any] = {
    io.TextIOWrapper: _Text,
    io.BufferedWriter: _Writer,
    io.BufferedRandom: _Random,
    io.FileIO: _Raw,
}
for _plain, _ours in _KINDS.items():
    # Libraries print and compare these names.
    _ours.__name__, _ours.__qualname__, _ours.__module__ = _plain.__name__, _plain.__qualname__, "_io"


def _announcing(opened: Any, shown: str, fresh: bool, newline: str | None) -> Any:
    """The same open file, in a class that announces what is written out of its buffer.

    fresh: it is new or was truncated, so that closing it is announced even if nothing is written through it.
    """
    kind = _KINDS.get(type(opened))
    if kind is None:
        return opened
    made: Any
    if kind is _Text:
        mode, encoding, errors = opened.mode, opened.encoding, opened.errors
        by_line, through = opened.line_buffering, opened.write_through
        made = _Text(opened.detach(), encoding, errors, newline, by_line, through)
        made.mode, made._once_by_line = mode, by_line
    elif kind is _Raw:
        # It has nothing to detach: a second descriptor of the same open file, and the first goes.
        made = _Raw(os.dup(opened.fileno()), opened.mode)
        made.name = opened.name
        opened.close()
    else:
        made = kind(opened.detach())
    made._once_shown, made._once_pending = shown, fresh
    _descriptors[made.fileno()] = shown
    return made
