"""What a PostgreSQL database is made of besides rows, read from its catalogs.

A schema is a set of definitions, one line each, with the statement that would drop what it defines. Two databases
with equal lines are interchangeable once their rows are equal.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psycopg

_FIRST_USER_OID = 16384

VERSION = f"""
SELECT md5(string_agg(entry, ',' ORDER BY entry)) FROM (
  SELECT concat_ws(' ', 'c', oid, relname, relkind, relnamespace, relpersistence) FROM pg_class
  WHERE oid >= {_FIRST_USER_OID} AND relkind <> 't' AND relpersistence <> 't'
  UNION ALL SELECT concat_ws(' ', 'a', attrelid, attnum, xmin) FROM pg_attribute
  WHERE attrelid >= {_FIRST_USER_OID} AND attnum > 0
  UNION ALL SELECT concat_ws(' ', 'd', oid, xmin) FROM pg_attrdef WHERE oid >= {_FIRST_USER_OID}
  UNION ALL SELECT concat_ws(' ', 'k', oid, xmin) FROM pg_constraint WHERE oid >= {_FIRST_USER_OID}
  UNION ALL SELECT concat_ws(' ', 'i', indexrelid, xmin) FROM pg_index WHERE indexrelid >= {_FIRST_USER_OID}
  UNION ALL SELECT concat_ws(' ', 'p', oid, xmin) FROM pg_proc WHERE oid >= {_FIRST_USER_OID}
  UNION ALL SELECT concat_ws(' ', 't', oid, xmin) FROM pg_trigger WHERE oid >= {_FIRST_USER_OID}
  UNION ALL SELECT concat_ws(' ', 'y', oid, xmin) FROM pg_type WHERE oid >= {_FIRST_USER_OID}
  UNION ALL SELECT concat_ws(' ', 'e', oid, xmin) FROM pg_enum
  UNION ALL SELECT concat_ws(' ', 'n', oid, xmin) FROM pg_namespace WHERE oid >= {_FIRST_USER_OID}
  UNION ALL SELECT concat_ws(' ', 'r', oid, xmin) FROM pg_rewrite WHERE oid >= {_FIRST_USER_OID}
  UNION ALL SELECT concat_ws(' ', 's', seqrelid, xmin) FROM pg_sequence
) AS entries(entry)
"""
"""A short text that changes with every change of the schema, and sometimes without one; cheap."""

_OWN = """
WITH member AS (SELECT classid, objid FROM pg_depend WHERE deptype = 'e'),
space AS (
  SELECT oid, nspname FROM pg_namespace
  WHERE nspname <> 'information_schema' AND nspname NOT LIKE 'pg\\_%'
),
relation AS (
  SELECT c.oid, c.relkind, c.relpersistence, c.relname, s.nspname, format('%I.%I', s.nspname, c.relname) AS named
  FROM pg_class c JOIN space s ON s.oid = c.relnamespace
  WHERE c.relpersistence <> 't'
    AND NOT EXISTS (SELECT FROM member WHERE classid = 'pg_class'::regclass AND objid = c.oid)
)
"""
"""What belongs to the user: nothing of the system's, nothing that an extension brings along, nothing temporary."""

_LINES = (
    _OWN
    + """
SELECT concat_ws(' ', 'schema', nspname), format('DROP SCHEMA IF EXISTS %I CASCADE', nspname) FROM space
UNION ALL
SELECT concat_ws(' ', 'relation', named, relkind, relpersistence), format('DROP %s IF EXISTS %s CASCADE',
  CASE relkind WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW' WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, named)
FROM relation WHERE relkind IN ('r', 'p', 'v', 'm', 'S')
UNION ALL
SELECT concat_ws(' ', 'column', r.named, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
  a.attgenerated, pg_get_expr(d.adbin, d.adrelid)),
  format('ALTER TABLE IF EXISTS %s DROP COLUMN IF EXISTS %I CASCADE', r.named, a.attname)
FROM relation r JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE r.relkind IN ('r', 'p')
UNION ALL
SELECT concat_ws(' ', 'constraint', r.named, k.conname, pg_get_constraintdef(k.oid)),
  format('ALTER TABLE IF EXISTS %s DROP CONSTRAINT IF EXISTS %I CASCADE', r.named, k.conname)
FROM relation r JOIN pg_constraint k ON k.conrelid = r.oid
UNION ALL
SELECT concat_ws(' ', 'index', pg_get_indexdef(i.indexrelid)), format('DROP INDEX IF EXISTS %s', x.named)
FROM relation r JOIN pg_index i ON i.indrelid = r.oid JOIN relation x ON x.oid = i.indexrelid
WHERE NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = i.indexrelid AND k.contype IN ('p', 'u', 'x'))
UNION ALL
SELECT concat_ws(' ', 'view', named, pg_get_viewdef(oid)), format('DROP %s IF EXISTS %s CASCADE',
  CASE relkind WHEN 'v' THEN 'VIEW' ELSE 'MATERIALIZED VIEW' END, named)
FROM relation WHERE relkind IN ('v', 'm')
UNION ALL
SELECT concat_ws(' ', 'sequence', r.named, q.seqtypid, q.seqincrement, q.seqmin, q.seqmax, q.seqcycle),
  format('DROP SEQUENCE IF EXISTS %s CASCADE', r.named)
FROM relation r JOIN pg_sequence q ON q.seqrelid = r.oid
UNION ALL
SELECT concat_ws(' ', 'trigger', r.named, pg_get_triggerdef(t.oid), t.tgenabled),
  format('DROP TRIGGER IF EXISTS %I ON %s', t.tgname, r.named)
FROM relation r JOIN pg_trigger t ON t.tgrelid = r.oid AND NOT t.tgisinternal
UNION ALL
SELECT concat_ws(' ', 'routine', p.oid::regprocedure, CASE WHEN p.prokind IN ('f', 'p') THEN pg_get_functiondef(p.oid)
  END), format('DROP ROUTINE IF EXISTS %s CASCADE', p.oid::regprocedure)
FROM pg_proc p JOIN space s ON s.oid = p.pronamespace
WHERE NOT EXISTS (SELECT FROM member WHERE classid = 'pg_proc'::regclass AND objid = p.oid)
UNION ALL
SELECT concat_ws(' ', 'type', s.nspname, t.typname, t.typtype, format_type(t.typbasetype, t.typtypmod), t.typdefault,
  (SELECT string_agg(enumlabel, ',' ORDER BY enumsortorder) FROM pg_enum WHERE enumtypid = t.oid)),
  format('DROP TYPE IF EXISTS %I.%I CASCADE', s.nspname, t.typname)
FROM pg_type t JOIN space s ON s.oid = t.typnamespace
WHERE t.typtype IN ('e', 'd', 'r') AND NOT EXISTS (
  SELECT FROM member WHERE classid = 'pg_type'::regclass AND objid = t.oid)
UNION ALL
SELECT concat_ws(' ', 'extension', extname), format('DROP EXTENSION IF EXISTS %I CASCADE', extname) FROM pg_extension
"""
)

_COLUMNS = (
    _OWN
    + """
SELECT r.nspname, r.relname, a.attname, t.typname FROM relation r
JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
JOIN pg_type t ON t.oid = a.atttypid
WHERE r.relkind = 'r' ORDER BY r.nspname, r.relname, a.attnum
"""
)

_SEQUENCES = (
    _OWN
    + """
SELECT r.nspname, r.relname, q.seqincrement, o.nspname, o.relname, a.attname FROM relation r
JOIN pg_sequence q ON q.seqrelid = r.oid
LEFT JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = r.oid AND d.deptype IN ('a', 'i')
  AND d.refclassid = 'pg_class'::regclass
LEFT JOIN relation o ON o.oid = d.refobjid
LEFT JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
ORDER BY r.nspname, r.relname
"""
)


def quoted(*names: str) -> str:
    """A name in SQL: schema and table, or one name alone."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def shown(schema: str, name: str) -> str:
    """A name for a person."""
    return name if schema == "public" else f"{schema}.{name}"


@dataclass(frozen=True, slots=True)
class Table:
    """A table that has rows. types: of its columns, as pg_type calls them. Generated columns are left out."""

    schema: str
    name: str
    columns: tuple[str, ...]
    types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sequence:
    """increment: of one step. owner: (schema, table, column) whose values it makes, if one."""

    schema: str
    name: str
    increment: int
    owner: tuple[str, str, str] | None


@dataclass(frozen=True, slots=True)
class Schema:
    """drops: definition -> the statement that removes what it defines. key: equal for equal definitions."""

    drops: dict[str, str]
    tables: tuple[Table, ...]
    sequences: tuple[Sequence, ...]
    key: str

    @property
    def rows_query(self) -> str:
        """All rows of all tables: (number of the table, its cells as text); "" if there is no table."""
        return " UNION ALL ".join(
            f"SELECT {number}, ARRAY[{', '.join(f'{quoted(column)}::text' for column in table.columns)}]::text[] "
            f"FROM ONLY {quoted(table.schema, table.name)}"
            for number, table in enumerate(self.tables)
        )

    @property
    def sequences_query(self) -> str:
        """Where the sequences stand: (number, last value, whether that was given out); "" if there is none."""
        return " UNION ALL ".join(
            f"SELECT {number}, last_value, is_called FROM {quoted(sequence.schema, sequence.name)}"
            for number, sequence in enumerate(self.sequences)
        )


def read(connection: psycopg.Connection[tuple[object, ...]]) -> Schema:
    """The schema of the database that the connection is to."""
    drops = {str(line): str(drop) for line, drop in connection.execute(_LINES)}
    columns: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for schema, table, column, kind in connection.execute(_COLUMNS):
        columns.setdefault((str(schema), str(table)), []).append((str(column), str(kind)))
    tables = tuple(
        Table(schema, name, tuple(column for column, _ in found), tuple(kind for _, kind in found))
        for (schema, name), found in columns.items()
    )
    sequences = []
    for schema, name, increment, *owner in connection.execute(_SEQUENCES):
        owned = None if None in owner else (str(owner[0]), str(owner[1]), str(owner[2]))
        sequences.append(Sequence(str(schema), str(name), int(str(increment)), owned))
    key = hashlib.blake2b("\n".join(sorted(drops)).encode(), digest_size=8).hexdigest()
    return Schema(drops, tables, tuple(sequences), key)
