"""Migration 2: the gate's intents with their receipts, the attempts, and the questions to a person."""

from __future__ import annotations

from pytest_once.reference.schema import Migration

GATE_SCHEMA = Migration(
    number=2,
    name="gate, attempts, questions to people",
    statements=(
        # attempts: how often it was begun; the newest value is the fencing token of whoever may act.
        # sent_since: when the first request was sent that is not known to have had no effect; NULL if there is none.
        # sent_until: when the last request can have been sent. result: the receipt, JSON.
        """CREATE TABLE gate_intents (
          intent_id TEXT PRIMARY KEY,
          tool TEXT NOT NULL, payload TEXT NOT NULL, fingerprint TEXT NOT NULL,
          state TEXT NOT NULL CHECK (state IN ('REGISTERED', 'IN_FLIGHT', 'SUCCEEDED', 'FAILED', 'UNKNOWN')),
          result TEXT, reason TEXT,
          attempts BIGINT NOT NULL,
          lease_until DOUBLE PRECISION, sent_since DOUBLE PRECISION, sent_until DOUBLE PRECISION,
          unknown_since DOUBLE PRECISION,
          created_at DOUBLE PRECISION NOT NULL, updated_at DOUBLE PRECISION NOT NULL,
          CHECK ((state = 'IN_FLIGHT') = (lease_until IS NOT NULL)))""",
        "CREATE INDEX gate_leases ON gate_intents (lease_until) WHERE state = 'IN_FLIGHT'",
        "CREATE INDEX gate_unknown ON gate_intents (unknown_since, intent_id) WHERE state = 'UNKNOWN'",
        # late_*: what came back from it after somebody else had taken over or decided.
        """CREATE TABLE gate_attempts (
          intent_id TEXT NOT NULL REFERENCES gate_intents, attempt BIGINT NOT NULL,
          started_at DOUBLE PRECISION NOT NULL, ended_at DOUBLE PRECISION,
          outcome TEXT, reason TEXT,
          unknown_at DOUBLE PRECISION, resolved_at DOUBLE PRECISION, resolved_by TEXT,
          late_outcome TEXT, late_result TEXT, late_at DOUBLE PRECISION,
          PRIMARY KEY (intent_id, attempt))""",
        "CREATE INDEX gate_resolved ON gate_attempts (resolved_at) WHERE resolved_at IS NOT NULL",
        """CREATE TABLE gate_questions (
          intent_id TEXT NOT NULL REFERENCES gate_intents, attempt BIGINT NOT NULL,
          asked_at DOUBLE PRECISION NOT NULL, reason TEXT NOT NULL, contradiction BIGINT NOT NULL,
          window_from DOUBLE PRECISION, window_to DOUBLE PRECISION, candidates TEXT NOT NULL,
          decided_at DOUBLE PRECISION, decision TEXT, decided_by TEXT, why TEXT,
          PRIMARY KEY (intent_id, attempt, contradiction))""",
        "CREATE INDEX gate_waiting ON gate_questions (asked_at, intent_id) WHERE decided_at IS NULL",
    ),
)
