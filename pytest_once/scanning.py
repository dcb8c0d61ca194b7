"""What a cell holds that is not the same in every run: texts minted by randomness, and instants.

A name that is not recognised costs a search some states; a plain value that is taken for one costs a verdict. So only
minted texts on word boundaries, and instants of virtual time, are found.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from datetime import date
from functools import lru_cache
from typing import Any, TypeAlias

Cell: TypeAlias = int | float | str | bytes | None

SHORTEST_TOKEN = 4
"""Minted texts shorter than this are not renamed: "7" or "ok" would also occur where nobody minted them."""


# A scanned cell is the cell itself, or a tuple (cells never are) that starts with one of these tags:
#   ("-",)                            ignored
#   ("#", identity, type)             an int or blob which is a minted token
#   ("@", instant, type, scale)       a number which is an instant (integer nanoseconds)
#   ("text" | "bytes", pieces)        each is a str, ("~", identity, form) or ("@", (instant, ...), form)
#   ("~", key, identities, instants)  a cell of a volatile column
Scan: TypeAlias = Any
IGNORED = ("-",)
"""The scan of a cell that is no part of the state."""

PID = "pid="
"""How a process id is written among the tokens: as a number of its own it would be taken for many others."""

_RANDOM_PART = re.compile(
    r"""[^\s"',;:=|&]*\\[^\s]*"""  # the repr of bytes
    r"|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|\d+\.\d+[eE][+-]?\d+"
    r"|(?=[A-Za-z]*\d)[0-9A-Za-z]{4,}"
    r"|[A-Za-z]{12,}",
    re.IGNORECASE,
)
"""What beside something known to be random is taken for random too; short numbers and words are not."""

_SCALES = (1, 10**3, 10**6, 10**9)
_SCANNERS = 128
_KNOWN_TEXTS = 16384
_LONGEST_KNOWN_TEXT = 256
_ALNUM = frozenset("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_RUN = re.compile("[0-9A-Za-z]+")
_UUID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_HEX = re.compile("(?:[0-9A-Fa-f]{2})+")
_TIME = re.compile(
    r"(?<![0-9A-Za-z])(?:"
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?"
    r"(?: ?(Z|[+-]\d\d(?::?\d\d)?))?"
    r"|(?<!\d\.)(\d{10,19})(?:\.(\d+))?"
    r")(?![0-9A-Za-z])",
    re.ASCII,
)
# Bound at import: the child's virtual clock replaces time.localtime, and this module must not follow it.
_LOCALTIME = (time.localtime,)


def identity_of(token: str) -> str:
    """What a token shares with its other forms: a uuid minted with dashes may be used without."""
    return token.replace("-", "") if _UUID.fullmatch(token) else token


# Where the first run starts in the text, the text, its token's identity, and a mark of the text's form.
_Candidate: TypeAlias = tuple[int, str, str, str]


@lru_cache(maxsize=8192)
def _forms(token: str) -> tuple[str, tuple[tuple[str, _Candidate], ...], bytes | None, int | None]:
    """A token's identity; its texts by their first run; the blob and the number that mean it too."""
    identity = identity_of(token)
    if identity != token:
        texts = [(token, ""), (identity, "h")]
    else:
        texts = [(token, "h" if len(token) == 32 and _HEX.fullmatch(token) else "")]
    candidates = []
    for text, form in texts:
        run = _RUN.search(text)
        if run is not None:
            candidates.append((run.group(), (run.start(), text, identity, form)))
    blob = bytes.fromhex(identity) if _HEX.fullmatch(identity) else None
    decimal = token.isascii() and token.isdigit() and (token[0] != "0" or token == "0")
    return identity, tuple(candidates), blob, int(token) if decimal else None


@lru_cache(maxsize=_KNOWN_TEXTS)
def _features(text: str) -> tuple[frozenset[str], bool]:
    """What decides under any naming whether to look at a text: its runs, and whether it may hold a time."""
    return frozenset(_RUN.findall(text)), _TIME.search(text) is not None


class Scanner:
    """Finds the minted tokens and the instants of one naming in cells."""

    def __init__(self, tokens: frozenset[str], window: tuple[float, float], base: Scanner | None = None) -> None:
        """base: a scanner made before, from which what does not depend on the difference is taken over."""
        # A token on word boundaries shows its first alphanumeric run as a whole run of the text; so one
        # look-up a run finds every candidate, however many tokens there are.
        self._by_run: dict[str, list[_Candidate]] = {}
        self._numbers: dict[int, str] = {}
        self._blobs: dict[bytes, str] = {}
        for token in tokens:
            if len(token) >= SHORTEST_TOKEN:
                identity, texts, blob, number = _forms(token)
                for run, candidate in texts:
                    candidates = self._by_run.setdefault(run, [])
                    if candidate not in candidates:
                        candidates.append(candidate)
                if blob is not None:
                    self._blobs[blob] = identity
                if number is not None:
                    self._numbers[number] = identity
        for candidates in self._by_run.values():
            if len(candidates) > 1:
                candidates.sort(key=lambda candidate: (-len(candidate[1]), candidate[1]))
        self._low, self._high = low, high = window
        self._windows = [(low * scale, high * scale, scale) for scale in _SCALES] if high > low else []
        self._known: dict[str, Scan] = {}
        self._tokens, self._window = tokens, window
        self._inherited: dict[str, Scan] = {}
        self._changed: set[str] = set()
        if base is not None and base._window == window:
            # What a text holds depends only on tokens whose first run is in it.
            self._inherited = base._known
            changed = (_forms(token) for token in tokens ^ base._tokens if len(token) >= SHORTEST_TOKEN)
            self._changed = {run for forms in changed for run, _ in forms[1]}

    def scan(self, cell: Cell) -> Scan:
        """The cell with its tokens and instants told apart from the rest."""
        kind = type(cell)
        if kind is str:
            return self._scan_text(cell)  # type: ignore[arg-type]
        if kind is int or kind is float:
            if kind is int and cell in self._numbers:
                return ("#", self._numbers[cell], "int")  # type: ignore[index]
            for low, high, scale in self._windows:
                if cell < low:  # type: ignore[operator]
                    return cell
                if cell <= high:  # type: ignore[operator]
                    return ("@", nanoseconds(cell, scale), kind.__name__, scale)  # type: ignore[arg-type]
            return cell
        if kind is bytes:
            identity = self._blobs.get(cell)  # type: ignore[arg-type]
            if identity is not None:
                return ("#", identity, "bytes")
            # latin-1 maps bytes to characters one to one, so text inside a blob is found as text.
            pieces = self._pieces(cell.decode("latin-1"))  # type: ignore[union-attr]
            return cell if pieces is None else ("bytes", pieces)
        return cell

    def _scan_text(self, text: str) -> Scan:
        if len(text) > _LONGEST_KNOWN_TEXT:
            pieces = self._pieces(text)
            return text if pieces is None else ("text", pieces)
        known = self._known.get(text)
        if known is None:
            runs, timed = _features(text)
            if text in self._inherited and runs.isdisjoint(self._changed):
                known = self._inherited[text]
            else:
                interesting = (timed and self._windows) or not runs.isdisjoint(self._by_run)
                pieces = self._pieces(text) if interesting else None
                known = text if pieces is None else ("text", pieces)
            if len(self._known) >= _KNOWN_TEXTS:
                self._known.clear()
            self._known[text] = known
        return known

    def _pieces(self, text: str) -> tuple[Any, ...] | None:
        spans = self._token_spans(text) if self._by_run else []
        if self._windows and len(text) >= 10:
            spans = self._with_instants(text, spans)
        if not spans:
            return None
        pieces: list[Any] = []
        end = 0
        for start, stop, piece in spans:
            if start > end:
                pieces.append(text[end:start])
            pieces.append(piece)
            end = stop
        if end < len(text):
            pieces.append(text[end:])
        return tuple(pieces)

    def _token_spans(self, text: str) -> list[tuple[int, int, Any]]:
        spans: list[tuple[int, int, Any]] = []
        end = 0
        by_run = self._by_run
        for run in _RUN.finditer(text):
            candidates = by_run.get(run.group())
            if candidates is None:
                continue
            for lead, token, identity, suffix in candidates:
                start = run.start() - lead
                stop = start + len(token)
                if (
                    start >= end
                    and text.startswith(token, start)
                    and (start == 0 or text[start - 1] not in _ALNUM)
                    and (stop == len(text) or text[stop] not in _ALNUM)
                ):
                    spans.append((start, stop, ("~", identity, suffix)))
                    end = stop
                    break
        return spans

    def _with_instants(self, text: str, spans: list[tuple[int, int, Any]]) -> list[tuple[int, int, Any]]:
        found: list[tuple[int, int, Any]] = []
        for match in _TIME.finditer(text):
            start, stop = match.span()
            if any(start < other_stop and other_start < stop for other_start, other_stop, _ in spans):
                continue
            piece = self._epoch(match) if match[9] else self._timestamp(match)
            if piece is not None:
                found.append((start, stop, piece))
        return sorted(spans + found, key=lambda span: span[0]) if found else spans

    def _epoch(self, match: re.Match[str]) -> Scan | None:
        whole, fraction = match[9], match[10] or ""
        for low, high, scale in self._windows:
            if low <= float(f"{whole}.{fraction}") <= high:
                instant = int(whole + fraction) * 10**9 // (scale * 10 ** len(fraction))
                # A fraction is a printed float, and is rounded as floats are.
                return ("@", (_to_microsecond(instant) if fraction else instant,), f"e{scale}")
        return None

    def _timestamp(self, match: re.Match[str]) -> Scan | None:
        year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
        if hour > 23 or minute > 59 or second > 59:
            return None
        try:
            days = date(year, month, day).toordinal() - 719163
        except ValueError:
            return None
        seconds = days * 86400 + hour * 3600 + minute * 60 + second
        below = int((match[7] or "").ljust(9, "0"))
        offset = match[8]
        if offset is None:
            # Nobody says whether a timestamp without an offset is UTC or local; both readings are ranked.
            local = seconds - _LOCALTIME[0](seconds).tm_gmtoff
            local = seconds - _LOCALTIME[0](local).tm_gmtoff
            readings = (seconds,) if local == seconds else (seconds, local)
        elif offset == "Z":
            readings = (seconds,)
        else:
            digits = offset[1:].replace(":", "").ljust(4, "0")
            shift = int(digits[:2]) * 3600 + int(digits[2:]) * 60
            readings = (seconds + shift if offset[0] == "-" else seconds - shift,)
        if not any(self._low <= reading + below / 1e9 <= self._high for reading in readings):
            return None
        return ("@", tuple(reading * 10**9 + below for reading in readings), "")


_latest: list[Scanner] = []


@lru_cache(maxsize=_SCANNERS)
def scanner_for(tokens: frozenset[str], window: tuple[float, float]) -> Scanner:
    """The scanner of these tokens, and of instants between these virtual times (epoch seconds), made when needed."""
    # A life mints a few texts more at each boundary; the latest scanner has done nearly all the work.
    scanner = Scanner(tokens, window, *_latest)
    _latest[:] = [scanner]
    return scanner


def _to_microsecond(instant: int) -> int:
    return (instant + 500) // 1000 * 1000


def nanoseconds(value: int | float, scale: int) -> int:
    """A number as an instant. scale: of its units one second has so many."""
    if isinstance(value, int):
        return value * (10**9 // scale)
    # A float of today's epoch resolves a quarter of a microsecond; rounded, it equals its printed forms.
    return round(value * 1e6 / scale) * 1000


def mask(scan: Scan) -> Any:
    """What is left of a scanned cell when every renamed value looks the same."""
    if type(scan) is not tuple:
        return scan
    tag = scan[0]
    if tag == "text" or tag == "bytes":
        return (tag, "".join(piece if type(piece) is str else piece[0] for piece in scan[1]))
    return (tag, *scan[2:]) if tag == "#" or tag == "@" else (tag,)


def instants_in(scan: Scan) -> Iterator[int]:
    """The instants of a scanned cell, in nanoseconds."""
    if type(scan) is tuple:
        if scan[0] == "@":
            yield scan[1]
        elif scan[0] == "~":
            yield from scan[3]
        elif scan[0] == "text" or scan[0] == "bytes":
            for piece in scan[1]:
                if type(piece) is not str and piece[0] == "@":
                    yield from piece[1]


def as_volatile(cell: Cell, scan: Scan, tokens: frozenset[str]) -> Scan:
    """The scan of a cell in a volatile column: its value becomes a name; links to tokens and to now stay."""
    if cell is None or cell == "" or cell == b"":
        return cell  # "nothing yet" is no random value, and what code decides by
    identities: tuple[str, ...] = ()
    if type(scan) is tuple:
        if scan[0] == "#":
            return scan
        if scan[0] == "text" or scan[0] == "bytes":
            if len(scan[1]) == 1 and scan[1][0][0] == "~":
                return scan
            identities = tuple(piece[1] for piece in scan[1] if type(piece) is not str and piece[0] == "~")
    rest = _visible(scan[1] if type(scan) is tuple else (cell,), tokens) if type(cell) is str else ""
    return ("~", (type(cell).__name__, cell), identities, tuple(instants_in(scan)), rest)


def _visible(pieces: Iterable[Any], tokens: frozenset[str]) -> str:
    """What stands beside the random parts of a text: it may well be what the code decides by."""
    shown = "".join(_RANDOM_PART.sub("~", piece) if type(piece) is str else piece[0] for piece in pieces)
    pids = _pids(tokens)
    return _RUN.sub(lambda run: "~" if run.group() in pids else run.group(), shown) if pids else shown


@lru_cache(maxsize=_SCANNERS)
def _pids(tokens: frozenset[str]) -> frozenset[str]:
    return frozenset(token.removeprefix(PID) for token in tokens if token.startswith(PID))


def tags_in(scan: Scan) -> list[str]:
    """What a scanned text has pieces of, besides plain text."""
    return [piece[0] for piece in scan[1] if type(piece) is not str] if type(scan) is tuple else []
