"""The tables of a ledger, and what of them is state rather than evidence about its history."""

from __future__ import annotations

SCHEMA = """
CREATE TABLE providers(
    name TEXT PRIMARY KEY, contract TEXT NOT NULL, key_field TEXT, endpoint TEXT, effects INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE arrivals(
    id INTEGER PRIMARY KEY, provider TEXT NOT NULL, operation TEXT NOT NULL, key TEXT, payload TEXT NOT NULL,
    incarnation INTEGER NOT NULL, outcome TEXT NOT NULL, status INTEGER NOT NULL,
    scope TEXT NOT NULL DEFAULT '', relied TEXT NOT NULL DEFAULT ''
);
CREATE TABLE effects(
    id INTEGER PRIMARY KEY, provider TEXT NOT NULL, operation TEXT NOT NULL, logical_key TEXT,
    payload TEXT NOT NULL, arrival INTEGER NOT NULL, reference TEXT, visible_s REAL,
    state TEXT NOT NULL DEFAULT 'done', due_s REAL,
    number INTEGER NOT NULL
);
CREATE TABLE receipts(
    provider TEXT NOT NULL, key TEXT NOT NULL, fingerprint TEXT NOT NULL, status INTEGER NOT NULL,
    body TEXT NOT NULL, effect INTEGER, expires_s REAL, promised_s REAL, PRIMARY KEY(provider, key)
) WITHOUT ROWID;
CREATE TABLE in_flight(
    id INTEGER PRIMARY KEY, provider TEXT NOT NULL, operation TEXT NOT NULL, key TEXT, payload TEXT NOT NULL,
    request TEXT NOT NULL, incarnation INTEGER NOT NULL, expires_s REAL, completes INTEGER
);
CREATE TABLE events(
    id INTEGER PRIMARY KEY, provider TEXT NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL,
    effect INTEGER NOT NULL, acknowledged INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE positions(
    provider TEXT NOT NULL, name TEXT NOT NULL, value INTEGER NOT NULL, PRIMARY KEY(provider, name)
) WITHOUT ROWID;
CREATE TABLE decisions(
    provider TEXT NOT NULL, parameter TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY(provider, parameter)
) WITHOUT ROWID;
CREATE TABLE told(
    id INTEGER PRIMARY KEY, arrival INTEGER, provider TEXT NOT NULL, operation TEXT NOT NULL,
    incarnation INTEGER NOT NULL, what TEXT NOT NULL
);
CREATE TABLE intents(key TEXT PRIMARY KEY, count INTEGER NOT NULL, provider TEXT) WITHOUT ROWID;
CREATE TABLE counters(name TEXT PRIMARY KEY, path TEXT NOT NULL, sql TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE memory(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE meta(name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES ('incarnation', 1);
"""

# In order of execution within a provider, not of values: random ones are later renamed by first occurrence.
STATE = (
    (
        "effects",
        "SELECT provider, operation, logical_key, payload, reference, visible_s, state, due_s FROM effects"
        " ORDER BY provider, id",
    ),
    (
        "receipts",
        "SELECT provider, key, fingerprint, status, body, expires_s, promised_s FROM receipts"
        " ORDER BY provider, effect, key",
    ),
    (
        "in_flight",
        "SELECT provider, operation, key, payload, expires_s, completes IS NOT NULL FROM in_flight ORDER BY id",
    ),
    ("events", "SELECT provider, kind, body, acknowledged FROM events ORDER BY id"),
    ("positions", "SELECT provider, name, value FROM positions ORDER BY provider, name"),
    ("decisions", "SELECT provider, parameter, value FROM decisions ORDER BY provider, parameter"),
    ("memory", "SELECT name, value FROM memory ORDER BY name"),
)
"""Table -> the query for what of it is state: what a contract or a look-up reads."""

ARRIVAL = "id, provider, operation, key, payload, incarnation, outcome, status, scope, relied"
EFFECT = "id, provider, operation, logical_key, payload, arrival, reference, visible_s, state, due_s, number"
RECEIPT = "provider, key, fingerprint, status, body, effect, expires_s, promised_s"
HELD = "id, provider, operation, key, payload, request, incarnation, expires_s, completes"
EVENT = "id, provider, kind, body, effect, acknowledged"
INCARNATION = "(SELECT value FROM meta WHERE name = 'incarnation')"
