"""Which tables there are, and how a database gets them, also when many processes start at once."""

from __future__ import annotations

from pytest_once.reference.gate_schema import GATE_SCHEMA
from pytest_once.reference.outbox_schema import OUTBOX_SCHEMA
from pytest_once.reference.schema import Dialect, Migration
from pytest_once.reference.steps import Statement, Steps

MIGRATIONS: tuple[Migration, ...] = (OUTBOX_SCHEMA, GATE_SCHEMA)

_LOCK = 1_869_767_525
"""Number of the advisory lock; any will do that nobody else uses."""

_PREPARE = {
    # BEGIN IMMEDIATE has already made this process the only one that writes.
    Dialect.SQLITE: "SELECT 1",
    Dialect.POSTGRESQL: f"SELECT 1 FROM (SELECT pg_advisory_xact_lock({_LOCK})) AS locked",
}
_TABLE_EXISTS = {
    Dialect.SQLITE: "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'reference_migrations'",
    Dialect.POSTGRESQL: "SELECT 1 WHERE to_regclass('reference_migrations') IS NOT NULL",
}


def migrate(dialect: Dialect, migrations: tuple[Migration, ...] = MIGRATIONS) -> Steps[list[int]]:
    """Apply what is missing, all of it in the transaction these steps run in. Returns the numbers applied now."""
    yield Statement(_PREPARE[dialect])
    if not (yield Statement(_TABLE_EXISTS[dialect])):
        yield Statement("CREATE TABLE reference_migrations (number BIGINT PRIMARY KEY, name TEXT NOT NULL)")
    known = {int(number) for (number,) in (yield Statement("SELECT number FROM reference_migrations"))}
    missing = [migration for migration in migrations if migration.number not in known]
    for migration in missing:
        for sql in migration.for_dialect(dialect):
            yield Statement(sql)
        yield Statement("INSERT INTO reference_migrations VALUES (?, ?)", (migration.number, migration.name))
    return [migration.number for migration in missing]
