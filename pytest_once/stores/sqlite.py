"""The logical content of a SQLite database, from the bytes of its files as a crash would leave them.

SQLite itself does the recovery (rollback of a hot journal, replay of a write-ahead log), on a private copy:
the tracked files are never opened as a database.
"""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from collections import OrderedDict
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from pytest_once.canonical import Row
from pytest_once.world import scratch

MAGIC = b"SQLite format 3\x00"
JOURNAL_MAGIC = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
SUFFIXES = (".db", ".db3", ".sqlite", ".sqlite3")
_WAL_MAGICS = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
_WAL_HEADER_BYTES = 32
_KEPT_DATABASES = 256

# In a tuple, so that neither patching sqlite3.connect nor a sweep over modules for it reaches us.
_CONNECT = (sqlite3.connect,)

_Key = tuple[str, bytes, bool, bool]
_cache: OrderedDict[_Key, tuple[Row, ...]] = OrderedDict()


def is_database(name: str, data: bytes, wal: bytes | None = None, journal: bytes | None = None) -> bool:
    """Whether a file is a SQLite database; an empty one is by its suffix, or a log or journal beside it."""
    if data:
        return data.startswith(MAGIC)
    return name.endswith(SUFFIXES) or (wal or b"")[:4] in _WAL_MAGICS or (journal or b"")[:8] == JOURNAL_MAGIC


def super_journal_of(journal: bytes | None) -> str | None:
    """Name of the super-journal (for a commit over several databases) that a hot journal names, if any."""
    if journal is None or journal[:8] != JOURNAL_MAGIC or journal[-8:] != JOURNAL_MAGIC or len(journal) < 528:
        return None
    length = int.from_bytes(journal[-16:-12], "big")
    if not 0 < length <= len(journal) - 16:
        return None
    path = journal[-16 - length : -16].rstrip(b"\x00")
    return path.decode("utf-8", "surrogateescape").rpartition("/")[2]


def database_rows(
    place: str,
    data: bytes,
    wal: bytes | None,
    journal: bytes | None,
    *,
    super_journals: Collection[str] = (),
    content_key: bytes | None = None,
) -> list[Row]:
    """Everything a process would read after recovery; a corrupt database is one row of raw bytes.

    place: prefix of the rows' places. super_journals: names of the super-journals in the same picture (a
    journal that names one is rolled back only if it exists). content_key: a hash of all three, if known.
    Rows WITHOUT ROWID are unordered; others come in rowid order, without the rowid itself.
    """
    wal = wal if wal is not None and len(wal) > _WAL_HEADER_BYTES else b""
    journal = journal if journal is not None and journal[:8] == JOURNAL_MAGIC else b""
    super_journal = super_journal_of(journal)
    if super_journal is not None and super_journal not in super_journals:
        journal = b""  # the whole transaction had committed when its super-journal went
    content_key = content_key or _hash(data) + _hash(wal) + _hash(journal)
    key = (place, content_key, super_journal is not None, bool(journal))
    known = _cache.get(key)
    if known is not None:
        _cache.move_to_end(key)
        return list(known)
    if super_journal is not None and journal:
        journal = _without_super_journal(journal)
    try:
        rows = tuple(_read(place, data, wal, journal))
    except (sqlite3.DatabaseError, OverflowError) as error:
        rows = (Row(place, ("content", "corrupt", "wal", "journal"), (data, str(error), wal, journal)),)
    _cache[key] = rows
    if len(_cache) > _KEPT_DATABASES:
        _cache.popitem(last=False)
    return list(rows)


def _hash(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _without_super_journal(journal: bytes) -> bytes:
    """The journal alone: its super-journal is found by a path into the live world, which has moved on."""
    length = int.from_bytes(journal[-16:-12], "big")
    return journal[: -20 - length]  # page number, name, length, checksum, magic


def _read(place: str, data: bytes, wal: bytes, journal: bytes) -> Iterator[Row]:
    if not data and not wal:
        yield Row(place, ("user_version", "application_id"), (0, 0))
        return
    with _opened(data, wal, journal) as connection:
        yield from _read_all(place, connection)


def query(data: bytes, wal: bytes | None, journal: bytes | None, sql: str) -> list[tuple[Any, ...]]:
    """Rows of a SELECT on a database's content; none while its tables are missing. Raises sqlite3.Error."""
    if not data and not wal:
        return []
    with _opened(data, wal or b"", journal or b"") as connection:
        try:
            return [tuple(row) for row in connection.execute(sql)]
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return []  # not made yet: nothing can be in it
            raise


def _rolls_back_nothing(data: bytes, journal: bytes) -> bool:
    """Whether a rollback would write only what is there already: the usual picture just before a COMMIT.

    Page images are compared, so no checksum is needed; the format is that of "The SQLite Database File Format", 3.
    """
    if journal[:8] != JOURNAL_MAGIC or len(journal) < 28:
        return False
    pages, sector, size = (int.from_bytes(journal[at : at + 4], "big") for at in (16, 20, 24))
    end = len(journal)
    if not size or len(data) != pages * size:
        return False
    record = size + 8
    for start in range(sector, end - record + 1, record):
        page = int.from_bytes(journal[start : start + 4], "big")
        if not page or data[(page - 1) * size : page * size] != journal[start + 4 : start + 4 + size]:
            return False
    return (end - sector) % record == 0


@contextmanager
def _opened(data: bytes, wal: bytes, journal: bytes) -> Iterator[sqlite3.Connection]:
    """A connection to a private copy, after recovery."""
    if journal and not wal and _rolls_back_nothing(data, journal):
        journal = b""
    if not wal and not journal and hasattr(sqlite3.Connection, "deserialize"):
        if data[18:20] == b"\x02\x02":
            data = data[:18] + b"\x01\x01" + data[20:]  # a memory database cannot be in WAL mode
        with closing(_CONNECT[0](":memory:", isolation_level=None)) as connection:
            connection.deserialize(data)
            yield connection
        return
    directory = scratch("sqlite")
    try:
        path = directory / "copy.db"
        path.write_bytes(data)
        if wal:
            Path(f"{path}-wal").write_bytes(wal)
        if journal:
            Path(f"{path}-journal").write_bytes(journal)
        with closing(_CONNECT[0](str(path), isolation_level=None)) as connection:
            # Exclusive: the log's index then lives on the heap and needs no -shm file.
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("PRAGMA synchronous=OFF")
            yield connection
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _read_all(place: str, connection: sqlite3.Connection) -> Iterator[Row]:
    connection.text_factory = _text
    execute = connection.execute
    schema = execute("SELECT type, name, tbl_name, sql, rootpage FROM sqlite_master ORDER BY 1, 2").fetchall()
    pragmas = ("user_version", "application_id")
    yield Row(place, pragmas, tuple(execute(f"PRAGMA {pragma}").fetchone()[0] for pragma in pragmas))
    kept = [entry for entry in schema if not str(entry[1]).startswith("sqlite_stat")]
    for entry in kept:
        yield Row(f"{place}/sqlite_schema", ("type", "name", "tbl_name", "sql"), tuple(entry[:4]))
    for kind, name, _, sql, root_page in kept:
        if kind == "table" and root_page:  # a virtual table has none; its shadow tables are read as they are
            columns, query, ordered = _plan(connection, name, sql)
            table = f"{place}/{name}"
            for cells in execute(query):
                yield Row(table, columns, cells, ordered)


def _text(raw: bytes) -> Any:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


_Plan = tuple[tuple[str, ...], str, bool]
_plans: OrderedDict[tuple[str, str], _Plan] = OrderedDict()


def _plan(connection: sqlite3.Connection, table: str, sql: str) -> _Plan:
    """How to read a table: its columns, the query, whether the rows' order means something."""
    known = _plans.get((table, sql))
    if known is None:
        known = _plans[table, sql] = _make_plan(connection, table)
        if len(_plans) > _KEPT_DATABASES:
            _plans.popitem(last=False)
    return known


def _make_plan(connection: sqlite3.Connection, table: str) -> _Plan:
    # Generated columns follow from the others, and may call functions that only the application registers.
    fields = connection.execute(f"PRAGMA table_xinfo({_quoted(table)})").fetchall()
    columns = tuple(str(field[1]) for field in fields if field[6] == 0)
    select = f"SELECT {', '.join(map(_quoted, columns))} FROM {_quoted(table)}"
    taken = {str(field[1]).lower() for field in fields}
    free = [alias for alias in ("rowid", "_rowid_", "oid") if alias not in taken]
    by_all = f"{select} ORDER BY {', '.join(map(str, range(1, len(columns) + 1)))}"
    queries = [(f"{select} ORDER BY {free[0]}", True)] if free else []
    # The last one is for a collation that only the application registers.
    for query, ordered in [*queries, (by_all, False), (select, False)]:
        if _compiles(connection, query):
            return columns, query, ordered
    return columns, select, False


def _compiles(connection: sqlite3.Connection, query: str) -> bool:
    try:
        connection.execute(f"EXPLAIN {query}")
    except sqlite3.OperationalError:
        return False
    return True


@lru_cache(maxsize=1024)
def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
