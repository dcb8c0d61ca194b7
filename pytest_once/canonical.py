"""The logical form of a world: rows renamed until only what matters differs, and a digest of them.

Two worlds are merged when their digests are equal, so every rule here errs towards keeping them apart: a name
that is not recognised costs a search some states; two worlds wrongly taken for one cost a verdict.
"""

from __future__ import annotations

import fnmatch
import hashlib
import marshal
import re
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache
from itertools import zip_longest
from typing import Any, TypeAlias

Cell: TypeAlias = int | float | str | bytes | None

SHORTEST_TOKEN = 4
"""Minted texts shorter than this are not renamed: "7" or "ok" would also occur where nobody minted them."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the world.

    place: "agent.db/tasks", "notes.txt", "ledger/effects". names: the columns; a file has ("content", ...),
    a directory ("directory",), a link ("symlink",). ordered: whether the order among the place's rows means
    something (False for a table WITHOUT ROWID, whose rows come sorted by keys that may be minted).
    """

    place: str
    names: tuple[str, ...]
    cells: tuple[Cell, ...]
    ordered: bool = True


@dataclass(frozen=True, slots=True)
class Naming:
    """What is volatile in the worlds of one path.

    tokens: texts minted by the path's randomness (uuids, hex, urlsafe base64, pids). columns: "place.column"
    whose cells differ between two fault-free runs, as `differences` names them. ignore: the user's patterns,
    matched against "place.column" and whole places ("tasks.attempts", "*.updated_at", "*.log"). clock_window:
    virtual epoch seconds (lowest, highest) between which a number or timestamp is an instant; none is when
    highest <= lowest. Leave a margin below the first instant: timestamps may be cut to the minute.
    """

    tokens: frozenset[str] = frozenset()
    columns: frozenset[str] = frozenset()
    ignore: tuple[str, ...] = ()
    clock_window: tuple[float, float] = (0.0, 0.0)

    def with_tokens(self, tokens: frozenset[str]) -> Naming:
        """The same naming with these tokens instead."""
        return replace(self, tokens=tokens)


@dataclass(frozen=True, slots=True)
class Difference:
    """How the worlds of two fault-free runs differ after renaming.

    volatile: columns ("place.column") whose values differ. unstable: those of them in which even *which*
    values are equal differs, so that renaming cannot hide it and only `ignore` can. structural: set when
    places, row counts or column names differ, and says where; the other two are then empty.
    """

    volatile: frozenset[str] = frozenset()
    unstable: frozenset[str] = frozenset()
    structural: str | None = None


# A scanned cell is the cell itself, or a tuple (cells never are) that starts with one of these tags:
#   ("-",)                            ignored
#   ("#", identity, type)             an int or blob which is a minted token
#   ("@", instant, type, scale)       a number which is an instant (integer nanoseconds)
#   ("text" | "bytes", pieces)        each is a str, ("~", identity, form) or ("@", (instant, ...), form)
#   ("~", key, identities, instants)  a cell of a volatile column
_Scan: TypeAlias = Any
_IGNORED = ("-",)
_PLAIN, _IGNORE, _VOLATILE = 0, 1, 2
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


def _identity(token: str) -> str:
    """What a token shares with its other forms: a uuid minted with dashes may be used without."""
    return token.replace("-", "") if _UUID.fullmatch(token) else token


# Where the first run starts in the text, the text, its token's identity, and a mark of the text's form.
_Candidate: TypeAlias = tuple[int, str, str, str]


@lru_cache(maxsize=8192)
def _forms(token: str) -> tuple[str, tuple[tuple[str, _Candidate], ...], bytes | None, int | None]:
    """A token's identity; its texts by their first run; the blob and the number that mean it too."""
    identity = _identity(token)
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


class _Scanner:
    """Finds the minted tokens and the instants of one naming in cells."""

    def __init__(self, tokens: frozenset[str], window: tuple[float, float], base: _Scanner | None = None) -> None:
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
        self._known: dict[str, _Scan] = {}
        self._tokens, self._window = tokens, window
        self._inherited: dict[str, _Scan] = {}
        self._changed: set[str] = set()
        if base is not None and base._window == window:
            # What a text holds depends only on tokens whose first run is in it.
            self._inherited = base._known
            changed = (_forms(token) for token in tokens ^ base._tokens if len(token) >= SHORTEST_TOKEN)
            self._changed = {run for forms in changed for run, _ in forms[1]}

    def scan(self, cell: Cell) -> _Scan:
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
                    return ("@", _nanoseconds(cell, scale), kind.__name__, scale)  # type: ignore[arg-type]
            return cell
        if kind is bytes:
            identity = self._blobs.get(cell)  # type: ignore[arg-type]
            if identity is not None:
                return ("#", identity, "bytes")
            # latin-1 maps bytes to characters one to one, so text inside a blob is found as text.
            pieces = self._pieces(cell.decode("latin-1"))  # type: ignore[union-attr]
            return cell if pieces is None else ("bytes", pieces)
        return cell

    def _scan_text(self, text: str) -> _Scan:
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

    def _epoch(self, match: re.Match[str]) -> _Scan | None:
        whole, fraction = match[9], match[10] or ""
        for low, high, scale in self._windows:
            if low <= float(f"{whole}.{fraction}") <= high:
                instant = int(whole + fraction) * 10**9 // (scale * 10 ** len(fraction))
                # A fraction is a printed float, and is rounded as floats are.
                return ("@", (_to_microsecond(instant) if fraction else instant,), f"e{scale}")
        return None

    def _timestamp(self, match: re.Match[str]) -> _Scan | None:
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


_latest: list[_Scanner] = []


@lru_cache(maxsize=_SCANNERS)
def _scanner(tokens: frozenset[str], window: tuple[float, float]) -> _Scanner:
    # A life mints a few texts more at each boundary; the latest scanner has done nearly all the work.
    scanner = _Scanner(tokens, window, *_latest)
    _latest[:] = [scanner]
    return scanner


def _to_microsecond(instant: int) -> int:
    return (instant + 500) // 1000 * 1000


def _nanoseconds(value: int | float, scale: int) -> int:
    if isinstance(value, int):
        return value * (10**9 // scale)
    # A float of today's epoch resolves a quarter of a microsecond; rounded, it equals its printed forms.
    return round(value * 1e6 / scale) * 1000


@lru_cache(maxsize=4096)
def matches_place(place: str, ignore: tuple[str, ...]) -> bool:
    """Whether a pattern names the place, or a directory or database which contains it."""
    parts = place.split("/")
    paths = ["/".join(parts[first:last]) for last in range(1, len(parts) + 1) for first in range(last)]
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in ignore for path in paths)


@lru_cache(maxsize=4096)
def matches_column(place: str, name: str, ignore: tuple[str, ...]) -> bool:
    """Whether a pattern names the column, from any directory or database on."""
    parts = f"{place}.{name}".split("/")
    paths = ["/".join(parts[first:]) for first in range(len(parts))]
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in ignore for path in paths)


def _mask(scan: _Scan) -> Any:
    """What is left of a scanned cell when every renamed value looks the same."""
    if type(scan) is not tuple:
        return scan
    tag = scan[0]
    if tag == "text" or tag == "bytes":
        return (tag, "".join(piece if type(piece) is str else piece[0] for piece in scan[1]))
    return (tag, *scan[2:]) if tag == "#" or tag == "@" else (tag,)


def _instants(scan: _Scan) -> Iterator[int]:
    if type(scan) is tuple:
        if scan[0] == "@":
            yield scan[1]
        elif scan[0] == "~":
            yield from scan[3]
        elif scan[0] == "text" or scan[0] == "bytes":
            for piece in scan[1]:
                if type(piece) is not str and piece[0] == "@":
                    yield from piece[1]


def _as_volatile(cell: Cell, scan: _Scan, tokens: frozenset[str]) -> _Scan:
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
    return ("~", (type(cell).__name__, cell), identities, tuple(_instants(scan)), rest)


def _visible(pieces: Iterable[Any], tokens: frozenset[str]) -> str:
    """What stands beside the random parts of a text: it may well be what the code decides by."""
    shown = "".join(_RANDOM_PART.sub("~", piece) if type(piece) is str else piece[0] for piece in pieces)
    pids = _pids(tokens)
    return _RUN.sub(lambda run: "~" if run.group() in pids else run.group(), shown) if pids else shown


@lru_cache(maxsize=_SCANNERS)
def _pids(tokens: frozenset[str]) -> frozenset[str]:
    return frozenset(token.removeprefix(PID) for token in tokens if token.startswith(PID))


@dataclass(slots=True)
class _ScannedRow:
    row: Row
    masked_place: str
    place_scan: _Scan
    scans: list[_Scan]
    varying: bool

    @property
    def names(self) -> tuple[str, ...]:
        return self.row.names

    def order(self) -> tuple[str, str, tuple[int, ...]]:
        """Where the row goes among rows in no meaningful order; the same however its tokens are spelled."""
        instants = tuple(instant for scan in self.scans for instant in _instants(scan))
        return self.masked_place, repr([_mask(scan) for scan in self.scans]), instants


class Form:
    """Rows scanned under a naming, to be rendered for a virtual time.

    instants: the distinct instants in the rows (integer nanoseconds, ascending). Two times with the same
    `slot` render alike.
    """

    def __init__(self, rows: Iterable[Row], naming: Naming) -> None:
        scanner = _scanner(naming.tokens, naming.clock_window)
        scan = scanner.scan
        places: dict[tuple[str, tuple[str, ...]], tuple[str, _Scan, tuple[int, ...]] | None] = {}
        in_order: list[_ScannedRow] = []
        in_no_order: list[_ScannedRow] = []
        for row in rows:
            where = (row.place, row.names)
            if where not in places:
                places[where] = self._read_place(row, scanner, naming)
            known = places[where]
            if known is None:
                continue
            masked_place, place_scan, roles = known
            if roles:
                scans: list[_Scan] = [
                    _IGNORED
                    if role == _IGNORE
                    else _as_volatile(cell, scan(cell), naming.tokens)
                    if role == _VOLATILE
                    else scan(cell)
                    for cell, role in zip(row.cells, roles, strict=True)
                ]
            else:
                scans = [scan(cell) for cell in row.cells]
            varying = tuple in map(type, scans)
            scanned = _ScannedRow(row, masked_place, place_scan, scans, varying)
            # A file named by a token comes wherever its name sorts, which must not decide any numbering.
            (in_order if row.ordered and "~" not in _tags(place_scan) else in_no_order).append(scanned)
        in_no_order.sort(key=_ScannedRow.order)
        self.rows = in_order + in_no_order
        ranked: set[int] = set()
        beside: set[int] = set()
        for found in self.rows:
            for one in found.scans if found.varying else ():
                if type(one) is tuple:
                    (beside if one[0] == "~" else ranked).update(_instants(one))
        for known in places.values():
            if known is not None:
                ranked.update(_instants(known[1]))
        # Random instants tell only whether they are past; ranked, they would shift the others at random.
        self._ranked = ranked
        self.instants: tuple[int, ...] = tuple(sorted(ranked | beside))

    @staticmethod
    def _read_place(row: Row, scanner: _Scanner, naming: Naming) -> tuple[str, _Scan, tuple[int, ...]] | None:
        if naming.ignore and matches_place(row.place, naming.ignore):
            return None
        place_scan = scanner.scan(row.place)
        masked = place_scan if type(place_scan) is str else _mask(place_scan)[1]
        roles = tuple(
            _IGNORE
            if naming.ignore and matches_column(row.place, name, naming.ignore)
            else _VOLATILE
            if f"{masked}.{name}" in naming.columns
            else _PLAIN
            for name in row.names
        )
        return masked, place_scan, roles if any(roles) else ()

    @property
    def varies(self) -> bool:
        """Whether any row holds a token, an instant or a volatile value."""
        return any(row.varying for row in self.rows)

    def slot(self, now_s: float) -> tuple[int, bool]:
        """Where a time (virtual epoch seconds) lies: how many instants precede it, whether one is it."""
        return slot(self.instants, now_s)

    def render(self, now_s: float) -> list[tuple[Any, ...]]:
        """The canonical rows at a virtual time (epoch seconds); the last one gives the rank of that time."""
        now = _nanoseconds(float(now_s), 1)
        rank = {instant: index for index, instant in enumerate(sorted({*self._ranked, now}))}
        numbers: dict[str, int] = {}
        # Counted apart: a column with random equalities must not renumber the tokens.
        values: dict[Any, int] = {}

        def number(identity: str) -> int:
            return numbers.setdefault(identity, len(numbers) + 1)

        def shown(scan: _Scan) -> Any:
            if type(scan) is not tuple:
                return scan
            tag = scan[0]
            if tag == "text" or tag == "bytes":
                return (tag, "".join(map(shown_piece, scan[1])))
            if tag == "@":
                return ("@", rank[scan[1]], *scan[2:])
            if tag == "#":
                return ("~", number(scan[1]), *scan[2:])
            if tag == "~":
                sides = "".join("<" if at < now else ">" if at > now else "=" for at in scan[3])
                name = values.setdefault(scan[1], len(values) + 1)
                return ("~", name, scan[1][0], tuple(map(number, scan[2])), sides, scan[4])
            return scan

        def shown_piece(piece: Any) -> str:
            if type(piece) is str:
                return str(piece).replace("~", "~~").replace("@", "@@")
            if piece[0] == "~":
                return f"~{number(piece[1])}{piece[2]}"
            return f"@{'|'.join(str(rank[instant]) for instant in piece[1])}{piece[2]}"

        rendered: list[tuple[Any, ...]] = []
        for row in self.rows:
            place = shown(row.place_scan)
            rendered.append((place, row.names, tuple(map(shown, row.scans)) if row.varying else row.row.cells))
        rendered.append(("@now", rank[now]))
        return rendered


def _tags(scan: _Scan) -> list[str]:
    return [piece[0] for piece in scan[1] if type(piece) is not str] if type(scan) is tuple else []


def slot(instants: Sequence[int], now_s: float) -> tuple[int, bool]:
    """Where a virtual time (epoch seconds) lies among ascending instants (nanoseconds)."""
    now = _nanoseconds(float(now_s), 1)
    index = bisect_left(instants, now)
    return index, index < len(instants) and instants[index] == now


def canonical_rows(rows: Iterable[Row], naming: Naming, now_s: float) -> list[tuple[Any, ...]]:
    """The rows with volatile values renamed; equality among values, and order among instants, are kept.

    now_s: virtual time in epoch seconds. Names are numbered in the order of the rows; rows whose order means
    nothing come last. The final entry is the rank of now_s.
    """
    return Form(rows, naming).render(now_s)


def digest(canonical: Sequence[tuple[Any, ...]]) -> str:
    """32 hex digits which tell canonical forms apart, types included; not comparable across Python versions.

    Raises TypeError for a cell that is not None, int, float, str or bytes (a store returned something else).
    """
    try:
        # Version 2 writes every value in full with its type and length; later versions write references,
        # which depend on whether equal objects happen to be the same object.
        data = marshal.dumps(list(canonical), 2)
    except ValueError as error:
        message = "a row holds a cell that is not None, int, float, str or bytes; convert it in the store's rows()"
        raise TypeError(message) from error
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def occurring(rows: Iterable[Row], tokens: frozenset[str]) -> frozenset[str]:
    """Those of the tokens that occur in the rows, in any of the forms in which they would be renamed."""
    scan = _scanner(tokens, (0.0, 0.0)).scan
    found: set[str] = set()
    for row in rows:
        for one in (row.place, *row.cells):
            scanned = scan(one)
            if type(scanned) is tuple:
                pieces = [scanned] if scanned[0] == "#" else scanned[1]
                found.update(piece[1] for piece in pieces if type(piece) is tuple)
    return frozenset(token for token in tokens if token.startswith(PID) or _identity(token) in found)


def differences(
    rows_a: Sequence[Row],
    rows_b: Sequence[Row],
    naming_a: Naming,
    naming_b: Naming,
    now_a: float,
    now_b: float,
) -> Difference:
    """Compare the worlds of two fault-free runs, made under shifted clock and entropy, cell by cell.

    now_a, now_b: virtual time of each, epoch seconds. Values explained by tokens and instants do not count.
    """
    found: set[str] = set()
    while True:
        form_a = Form(rows_a, replace(naming_a, columns=naming_a.columns | found))
        form_b = Form(rows_b, replace(naming_b, columns=naming_b.columns | found))
        structural = _structural(form_a.rows, form_b.rows)
        if structural is not None:
            return Difference(structural=structural)
        masked, numbered = _differing_columns(form_a, form_b, now_a, now_b)
        # Values first: one that no token explains may shift the numbers of all that follow, so columns that
        # differ by number only are believed one at a time.
        new = masked - found or set([name for name in numbered if name not in found][:1])
        if not new:
            return Difference(volatile=frozenset(found), unstable=frozenset(masked | set(numbered)))
        found |= new


def _structural(rows_a: list[_ScannedRow], rows_b: list[_ScannedRow]) -> str | None:
    for a, b in zip_longest(rows_a, rows_b):
        if a is not None and b is not None and a.masked_place == b.masked_place:
            if a.names != b.names:
                ours, theirs = ", ".join(a.names), ", ".join(b.names)
                return f"{a.masked_place}: columns {ours} in one run, {theirs} in the other"
            continue
        # The place that comes out short is the one to name; the rows around it have only moved.
        for row in (a, b):
            if row is not None:
                place = row.masked_place
                count_a, count_b = (sum(one.masked_place == place for one in rows) for rows in (rows_a, rows_b))
                if count_a != count_b:
                    return f"{place}: {_count(count_a)} in one run, {_count(count_b)} in the other"
        names = [row.masked_place if row is not None else "nothing" for row in (a, b)]
        return f"{names[0]} in one run where the other has {names[1]}"
    return None


def _count(rows: int) -> str:
    return f"{rows} row" if rows == 1 else f"{rows} rows"


def _differing_columns(a: Form, b: Form, now_a: float, now_b: float) -> tuple[set[str], list[str]]:
    masked: set[str] = set()
    numbered: list[str] = []
    rendered = zip(a.rows, b.rows, a.render(now_a), b.render(now_b), strict=False)
    for row_a, row_b, shown_a, shown_b in rendered:
        for index, name in enumerate(row_a.names):
            column = f"{row_a.masked_place}.{name}"
            if _encoded(_mask(row_a.scans[index])) != _encoded(_mask(row_b.scans[index])):
                masked.add(column)
            elif _encoded(shown_a[2][index]) != _encoded(shown_b[2][index]):
                numbered.append(column)
    return masked, numbered


def _encoded(value: Any) -> bytes:
    """For comparing with types: 1, 1.0 and True are equal in Python."""
    return marshal.dumps(value, 2)


def describe_changes(rows_a: Sequence[Row], rows_b: Sequence[Row]) -> list[str]:
    """What differs between two worlds, for a person: "agent.db/tasks.attempts: 3 -> 4".

    Rows of one place are compared in order. Each difference is listed once.
    """
    places: dict[str, tuple[list[Row], list[Row]]] = {}
    for side, rows in enumerate((rows_a, rows_b)):
        for row in rows:
            places.setdefault(row.place, ([], []))[side].append(row)
    changes: dict[str, None] = {}
    for place, (before, after) in places.items():
        if len(before) != len(after):
            changes[f"{place}: {_count(len(before))} -> {_count(len(after))}"] = None
        for a, b in zip(before, after, strict=False):
            if a.names != b.names:
                changes[f"{place}: ({', '.join(a.names)}) -> ({', '.join(b.names)})"] = None
                continue
            for name, was, now in zip(a.names, a.cells, b.cells, strict=True):
                if _encoded(was) != _encoded(now):
                    label = place if name == "content" and len(a.names) <= 2 else f"{place}.{name}"
                    changes[f"{label}: {_brief(was)} -> {_brief(now)}"] = None
    return list(changes)


def most_varied(worlds: Iterable[Sequence[Row]]) -> list[str]:
    """Columns with the most different contents among several worlds, or whole places whose number of rows varies."""
    seen: dict[str, set[bytes]] = {}
    for rows in worlds:
        columns: dict[str, list[Cell]] = {}
        sizes: dict[str, int] = {}
        for row in rows:
            sizes[row.place] = sizes.get(row.place, 0) + 1
            for name, cell in zip(row.names, row.cells, strict=True):
                label = row.place if name == "content" and len(row.names) <= 2 else f"{row.place}.{name}"
                columns.setdefault(label, []).append(cell)
        for label, content in (*columns.items(), *sizes.items()):
            seen.setdefault(label, set()).add(_encoded(content))
    most = max((len(contents) for contents in seen.values()), default=0)
    named = [label for label, contents in seen.items() if len(contents) == most > 1]
    # A place that has other rows each time has other cells in each of its columns: the place says it all.
    return [label for label in named if not any(label.startswith(f"{place}.") for place in named)]


def _brief(cell: Cell) -> str:
    text = repr(cell)
    return text if len(text) <= 60 else text[:57] + "..."


def masked_text(text: str, naming: Naming) -> str:
    """The text with every minted token and instant replaced by a fixed sign; equality is not kept."""
    scan = _scanner(naming.tokens, naming.clock_window).scan(text)
    return scan if isinstance(scan, str) else str(_mask(scan)[1])
