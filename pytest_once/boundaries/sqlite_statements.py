"""What a SQL statement does, as far as its text tells: the change that it makes, or the transaction it ends."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote

_SKIP = re.compile(r"(?:\s+|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)
_WORD = r"""(?:"[^"]+"|\[[^\]]+\]|`[^`]+`|'[^']+'|[\w$]+)"""
_NAME = rf"({_WORD}(?:\s*\.\s*{_WORD})?)"
_FLAGS = re.IGNORECASE | re.DOTALL
_QUOTING = re.compile(r"[\"\[\]`'\s]")
_WRITES = (
    ("INSERT INTO", re.compile(rf"INSERT\s+(?:OR\s+\w+\s+)?INTO\s+{_NAME}", _FLAGS)),
    ("REPLACE INTO", re.compile(rf"REPLACE\s+INTO\s+{_NAME}", _FLAGS)),
    ("UPDATE", re.compile(rf"UPDATE\s+(?:OR\s+\w+\s+)?{_NAME}", _FLAGS)),
    ("DELETE FROM", re.compile(rf"DELETE\s+FROM\s+{_NAME}", _FLAGS)),
)
_SCHEMA = re.compile(
    r"(CREATE|DROP|ALTER)\s+(?:TEMP\s+|TEMPORARY\s+|UNIQUE\s+|VIRTUAL\s+)*(TABLE|INDEX|VIEW|TRIGGER)\s+"
    rf"(?:IF\s+(?:NOT\s+)?EXISTS\s+)?{_NAME}",
    _FLAGS,
)
_LITERAL = re.compile(r"'(?:[^']|'')*'")
_RETURNING = re.compile(r"\bRETURNING\b", re.IGNORECASE)
_RELEASE = re.compile(rf"RELEASE\s+(?:SAVEPOINT\s+)?{_NAME}", _FLAGS)
_SAVEPOINT = re.compile(rf"SAVEPOINT\s+{_NAME}", _FLAGS)
_ROLLBACK_TO = re.compile(r"ROLLBACK\s+(?:TRANSACTION\s+)?TO\b", re.IGNORECASE)
_ATTACH = re.compile(r"ATTACH\s+(?:DATABASE\s+)?'((?:[^']|'')+)'", _FLAGS)
_PRAGMA = re.compile(r"PRAGMA\s+(?:\w+\s*\.\s*)?(\w+)\s*([=(]?)", _FLAGS)
_DURABLE_PRAGMAS = frozenset(
    {"journal_mode", "user_version", "application_id", "schema_version", "auto_vacuum", "encoding"}
)
"""Pragmas whose value is stored in the file; all others set up the connection only."""
_ACTING_PRAGMAS = frozenset({"optimize", "incremental_vacuum"})
UNREFUSABLE = frozenset({"PRAGMA journal_mode", "PRAGMA optimize", "PRAGMA incremental_vacuum"})
"""Statements that a transaction around them could not undo."""


def opening(text: str) -> tuple[str, str]:
    """(verb in capitals, statement without leading comments); no verb where SQLite traces its own work as a comment."""
    sql = text[_SKIP.match(text).end() :]  # type: ignore[union-attr]  # matches the empty string
    return sql[:12].partition(" ")[0].partition("\n")[0].partition(";")[0].upper(), sql


def returns_rows(sql: str) -> bool:
    """Whether a writing statement must have its rows taken before it is complete."""
    return _RETURNING.search(sql) is not None


def savepoint(sql: str) -> str | None:
    """The name that a SAVEPOINT gives or a RELEASE takes, comparable; None for other statements."""
    match = _SAVEPOINT.match(sql) or _RELEASE.match(sql)
    return None if match is None else _plain_name(match[1]).casefold()


def ends_transaction(rollback: str) -> bool:
    """Whether a ROLLBACK is one of everything, and not only to a savepoint."""
    return not _ROLLBACK_TO.match(rollback)


def attached_file(sql: str) -> str:
    """The file that an ATTACH names, "" for memory, temporary databases and other statements."""
    match = _ATTACH.match(sql)
    return "" if match is None else _path_of(match[1].replace("''", "'"))


def _plain_name(quoted: str) -> str:
    return _QUOTING.sub("", quoted)


def written_by(verb: str, sql: str) -> tuple[str, str] | None:
    """(short statement, what it writes) if the statement may change the file, else None."""
    if verb in ("INSERT", "REPLACE", "UPDATE", "DELETE"):
        for words, pattern in _WRITES:
            if match := pattern.match(sql):
                table = _plain_name(match[1])
                return f"{words} {table}", table
        return verb, verb.lower()
    if verb == "WITH":
        unquoted = _LITERAL.sub("''", sql)
        for words, pattern in _WRITES:
            if match := pattern.search(unquoted):
                table = _plain_name(match[1])
                return f"WITH {words} {table}", table
        return None
    if verb in ("CREATE", "DROP", "ALTER"):
        if match := _SCHEMA.match(sql):
            table = _plain_name(match[3])
            return f"{verb} {match[2].upper()} {table}", table
        return verb, "schema"
    if verb in ("VACUUM", "REINDEX", "ANALYZE"):
        return verb, verb.lower()
    if verb == "PRAGMA" and (match := _PRAGMA.match(sql)):
        name = match[1].lower()
        if name in _ACTING_PRAGMAS or (match[2] and name in _DURABLE_PRAGMAS):
            return f"PRAGMA {name}", name
    return None


def _path_of(name: str) -> str:
    """The file an ATTACH names, "" for memory and temporary databases."""
    if name.startswith("file:"):
        name, _, query = name[5:].partition("?")
        if "mode=memory" in query:
            return ""
        name = unquote(name.removeprefix("//"))
    return "" if name in ("", ":memory:") else os.path.realpath(name)
