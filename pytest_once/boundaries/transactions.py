"""When what a PostgreSQL client sends becomes durable: the same for every driver.

A session is told each text before it is sent. It announces what will be durable once the server has carried the text
out: the COMMIT of a transaction that wrote something, and outside of transactions each statement that writes. What a
SELECT calls may write, so one that calls a function which is not known to be harmless is announced as well.

Not seen: what the server does by itself (pg_cron, a procedure's own COMMITs after the first), `PREPARE TRANSACTION`'s
second phase in another session; LISTEN/NOTIFY and advisory locks are no part of the world.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from pytest_once.boundaries import announce
from pytest_once.faults import COMMIT_UNKNOWN, KINDS, STORE_BUSY, STORE_FAULTS, STORE_FULL, STORE_READONLY

_NOISE = re.compile(r"\s+|--[^\n]*(?:\n|$)|/\*.*?\*/", re.DOTALL)
_PIECES = re.compile(
    r"(?P<semicolon>;)"
    r"|(?P<quoted>(?:\b[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*')|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)"
    r"|(?P<noise>--[^\n]*(?:\n|$)|/\*.*?\*/)"
    r'|"(?:[^"]|"")*"|[^;\'"$/eE-]+|.',
    re.DOTALL,
)
_NAME = r'((?:"[^"]+"|[\w$]+)(?:\s*\.\s*(?:"[^"]+"|[\w$]+))?)'
_FLAGS = re.IGNORECASE | re.DOTALL
_WRITES = (
    ("INSERT INTO", re.compile(rf"\bINSERT\s+INTO\s+{_NAME}", _FLAGS)),
    ("UPDATE", re.compile(rf"\bUPDATE\s+(?:ONLY\s+)?{_NAME}\s", _FLAGS)),
    ("DELETE FROM", re.compile(rf"\bDELETE\s+FROM\s+(?:ONLY\s+)?{_NAME}", _FLAGS)),
    ("MERGE INTO", re.compile(rf"\bMERGE\s+INTO\s+(?:ONLY\s+)?{_NAME}", _FLAGS)),
)
_LOCKING = re.compile(r"\bFOR\s+(?:NO\s+KEY\s+)?UPDATE\b", re.IGNORECASE)
_SCHEMA = re.compile(
    r"(CREATE|DROP|ALTER|TRUNCATE|COMMENT|GRANT|REVOKE|REFRESH)\s+(?:OR\s+REPLACE\s+|UNIQUE\s+|UNLOGGED\s+|TABLE\s+ONLY\s+)*"
    rf"(?:(TABLE|INDEX|VIEW|MATERIALIZED\s+VIEW|SEQUENCE|TYPE|FUNCTION|PROCEDURE|TRIGGER|SCHEMA|EXTENSION)\s+)?"
    rf"(?:CONCURRENTLY\s+)?(?:IF\s+(?:NOT\s+)?EXISTS\s+)?{_NAME}",
    _FLAGS,
)
_TEMPORARY = re.compile(r"CREATE\s+(?:GLOBAL\s+|LOCAL\s+)?TEMP(?:ORARY)?\b", re.IGNORECASE)
_COPY = re.compile(rf"COPY\s+{_NAME}.*?\bFROM\b", _FLAGS)
_INTO = re.compile(rf"\bINTO\s+(?:TABLE\s+)?{_NAME}", _FLAGS)
_CALL = re.compile(r"(?:([\w$]+)\s*\.\s*)?([A-Za-z_][\w$]*)\s*\(")
_HARMLESS_WORDS = """
abs all and any array array_agg array_length array_position as avg between bool_and bool_or bpchar by case cast
ceil char_length clock_timestamp coalesce col_description concat concat_ws count cube current_database
current_schema current_schemas current_setting date_part date_trunc decode dense_rank digest distinct encode
every except exists extract filter first_value floor for format format_type from from_base64 gen_random_uuid
generate_series greatest grouping has_table_privilege hashtext hashtextextended having ifnull in
inet_server_addr intersect interval is json_agg json_build_array json_build_object jsonb_agg
jsonb_array_elements jsonb_array_elements_text jsonb_build_array jsonb_build_object jsonb_each jsonb_object_agg
jsonb_object_keys jsonb_set lag last_value lateral lead least left length limit localtimestamp lower lpad ltrim
make_interval materialized max md5 min mod not now nth_value ntile nullif numeric obj_description octet_length
offset on or order over overlay partition percentile_cont pg_backend_pid pg_column_size pg_encoding_to_char
pg_get_constraintdef pg_get_expr pg_get_indexdef pg_get_serial_sequence pg_get_userbyid pg_is_in_recovery
pg_relation_size pg_sleep pg_table_is_visible pg_total_relation_size pg_try_advisory_lock
pg_try_advisory_xact_lock pg_advisory_lock pg_advisory_unlock pg_advisory_xact_lock pg_type_is_visible position
power quote_ident random rank regexp_match regexp_matches regexp_replace repeat replace reverse right rollup
round row row_number row_to_json rpad rtrim select set_config sets shobj_description sign similar split_part
sqrt starts_with statement_timestamp stddev string_agg string_to_array strpos substr substring sum then
timestamp to_char to_date to_json to_jsonb to_number to_regclass to_timestamp transaction_timestamp translate
trim trunc txid_current_if_assigned union unnest upper using uuid values varchar variance version when where
width_bucket with within
"""
_HARMLESS = frozenset(_HARMLESS_WORDS.split())
"""What may stand before a parenthesis in a SELECT and changes nothing: common functions, and words of the language."""

_READING_WORDS = """
ANALYZE CHECKPOINT CLOSE CLUSTER DEALLOCATE DECLARE DISCARD FETCH LISTEN LOAD LOCK MOVE NOTIFY PREPARE RELEASE
RESET REINDEX SAVEPOINT SET SHOW UNLISTEN VACUUM
"""
_READING = frozenset(_READING_WORDS.split())
"""Statements that change no content: of the session, of locks, of how things are stored."""

_SQLSTATES = {
    STORE_BUSY: ("40001", "could not serialize access due to concurrent update"),
    STORE_FULL: ("53100", "could not extend file: No space left on device"),
    STORE_READONLY: ("25006", "cannot execute this statement in a read-only transaction"),
}


class InheritedConnectionError(RuntimeError):
    """A connection from before the incarnation is used in it: parent and children would write to one socket."""

    def __init__(self, driver: str) -> None:
        super().__init__(
            f"a connection of {driver} was opened before the incarnation (at module level, or by a module or session "
            "fixture) and is used inside it. A restarted process opens its own: open it in the test, or in a "
            "function-scoped fixture"
        )


def failing(fault: str, *, after: str = "") -> str:
    """A statement that the server answers with the error of a fault, and that changes nothing.

    after: a statement to be carried out first, in the same text ("ROLLBACK").
    """
    code, message = _SQLSTATES[fault]
    raised = f"RAISE EXCEPTION USING ERRCODE = '{code}', MESSAGE = '{message} ({KINDS[fault].name})'"
    return f"{after + '; ' if after else ''}DO $once$ BEGIN {raised}; END $once$"


def statements(text: str) -> list[str]:
    """The statements of a text, comments dropped and literals emptied."""
    found: list[str] = []
    current: list[str] = []
    for piece in _PIECES.finditer(text):
        if piece["semicolon"]:
            found.append("".join(current))
            current = []
        else:
            current.append(" " if piece["noise"] else "''" if piece["quoted"] else piece[0])
    found.append("".join(current))
    return [statement for part in found if (statement := part.strip())]


def written_by(statement: str) -> tuple[str, str] | None:
    """(short statement, what it writes) if the statement may change the database, else None."""
    verb = re.match(r"\(*\s*(\w*)", statement)[1].upper()  # type: ignore[index]  # matches the empty string
    if verb in _READING:
        return None
    if verb == "EXPLAIN":
        return _data(statement) if re.match(r"EXPLAIN\b[^;]{0,80}?\bANALY[SZ]E\b", statement, _FLAGS) else None
    if verb in ("INSERT", "UPDATE", "DELETE", "MERGE"):
        return _data(statement) or (verb, verb.lower())
    if verb in ("SELECT", "WITH", "VALUES", "TABLE"):
        return _data(_LOCKING.sub(" ", statement)) or _called(statement)
    if verb == "COPY":
        match = _COPY.match(statement)
        return (f"COPY {_plain(match[1])}", _plain(match[1])) if match else None
    if _TEMPORARY.match(statement):
        return None
    if match := _SCHEMA.match(statement):
        name = _plain(match[3])
        return " ".join(filter(None, (match[1].upper(), (match[2] or "").upper(), name))), name
    if verb in ("CALL", "DO", "EXECUTE"):
        match = re.match(rf"\w+\s+{_NAME}", statement, _FLAGS) if verb != "DO" else None
        return (f"{verb} {_plain(match[1])}", _plain(match[1])) if match else (verb, verb.lower())
    return verb, verb.lower()


def _data(statement: str) -> tuple[str, str] | None:
    for words, pattern in _WRITES:
        if match := pattern.search(statement):
            table = _plain(match[1])
            begins = pattern.match(statement)
            return f"{'' if begins else 'WITH '}{words} {table}", table
    return None


def _called(statement: str) -> tuple[str, str] | None:
    """A SELECT that may write: into a table, or through a function."""
    if (match := _INTO.search(statement)) and re.match(r"\(*\s*(?:SELECT|WITH)\b", statement, re.IGNORECASE):
        table = _plain(match[1])
        return f"SELECT INTO {table}", table
    for match in _CALL.finditer(statement):
        schema, name = (match[1] or "").lower(), match[2].lower()
        built_in = schema == "pg_catalog" or name.startswith("pg_")
        if name in ("nextval", "setval") or not (built_in or name in _HARMLESS):
            return f"SELECT {name}()", f"{name}()"
    return None


def _plain(name: str) -> str:
    return re.sub(r'["\s]', "", name)


@dataclass(slots=True)
class Session:
    """What one connection has written and not made durable yet.

    outside: called with what is about to be made durable, if the database does not belong to the world. written:
    tables, in the order they were first written. in_transaction: one was begun and has not ended. copying: a COPY
    that commits by itself, when its data are complete.
    """

    outside: Callable[[str], None] | None = None
    written: dict[str, None] = field(default_factory=dict)
    in_transaction: bool = False
    copying: str | None = None

    def before(self, text: str, *, in_transaction: bool | None = None, deferred: bool = False) -> Passing | None:
        """Called before a text is sent; announces it if it makes something durable.

        in_transaction: what the driver knows of the server, None if it does not know yet. deferred: a pipeline, in
        which what is written outside a transaction commits at the next `synced`. Returns None, or what was announced
        and ordered.
        """
        if in_transaction is not None:
            if not in_transaction and self.in_transaction:
                self.written.clear()  # it ended in a way that was not seen, and so without a commit
            self.in_transaction = in_transaction
        commits: list[str] = []
        alone: dict[str, str] = {}
        for statement in statements(text):
            verb = statement.split(None, 1)[0].upper()
            if verb in ("BEGIN", "START"):
                if not self.in_transaction:
                    self.written.clear()
                self.in_transaction = True
            elif verb in ("COMMIT", "END") or re.match(r"PREPARE\s+TRANSACTION\b", statement, re.IGNORECASE):
                if self.written:
                    commits.append(f"COMMIT ({', '.join(self.written)})")
                self.written.clear()
                self.in_transaction = bool(re.search(r"\bAND\s+CHAIN\b", statement, re.IGNORECASE))
            elif verb in ("ROLLBACK", "ABORT"):
                if not re.match(r"ROLLBACK\s+(?:WORK\s+|TRANSACTION\s+)?TO\b", statement, re.IGNORECASE):
                    self.written.clear()
                    self.in_transaction = False
            elif written := written_by(statement):
                short, what = written
                if self.in_transaction or deferred:
                    self.written[what] = None
                elif verb == "COPY":
                    self.copying = short
                else:
                    alone[short] = what
        what = "; ".join((*alone, *commits))
        return self._announced(what, ends=bool(commits) and not alone) if what else None

    def synced(self) -> Passing | None:
        """A pipeline is about to be synced: what was written in it outside a transaction commits."""
        if self.in_transaction or not self.written:
            return None
        what = f"SYNC ({', '.join(self.written)})"
        self.written.clear()
        return self._announced(what, ends=False)

    def copied(self) -> Passing | None:
        """A COPY's data are complete: it commits."""
        what, self.copying = self.copying, None
        return None if what is None else self._announced(what, ends=False, faults=(COMMIT_UNKNOWN,))

    def _announced(self, what: str, *, ends: bool, faults: tuple[str, ...] = STORE_FAULTS) -> Passing:
        if self.outside is not None:
            self.outside(what)
        return Passing(what, ends, announce("postgresql", f"postgresql {what}", faults=faults).fault)


@dataclass(frozen=True, slots=True)
class Passing:
    """An announced boundary that is being passed. ends: it ends a transaction. fault: what was ordered."""

    what: str
    ends: bool
    fault: str | None

    @property
    def loses(self) -> bool:
        """What is sent is carried out, and the connection is lost before the answer."""
        return self.fault == COMMIT_UNKNOWN

    @property
    def instead(self) -> str | None:
        """What to send in place of the text, so that the server refuses it; None to send the text."""
        if self.fault is None or self.loses:
            return None
        return failing(self.fault, after="ROLLBACK" if self.ends else "")
