"""Migration 1: tasks and intents, outbox, inbox."""

from __future__ import annotations

from pytest_once.reference.schema import Dialect, Migration

OUTBOX_SCHEMA = Migration(
    number=1,
    name="tasks, intents, outbox, inbox",
    statements=(
        """CREATE TABLE tasks (
          tenant TEXT NOT NULL, task TEXT NOT NULL, description TEXT NOT NULL, planned_at DOUBLE PRECISION NOT NULL,
          PRIMARY KEY (tenant, task))""",
        """CREATE TABLE intents (
          intent_id TEXT PRIMARY KEY,
          tenant TEXT NOT NULL, task TEXT NOT NULL, step TEXT NOT NULL, action TEXT NOT NULL,
          payload TEXT NOT NULL, binding TEXT NOT NULL, planned_at DOUBLE PRECISION NOT NULL,
          UNIQUE (tenant, task, step, action),
          FOREIGN KEY (tenant, task) REFERENCES tasks (tenant, task))""",
        # due_at: when it may be claimed next; while claimed, when the claim ends; NULL when nothing is left to send.
        # attempts: how often it was claimed; the newest value is the fencing token of the claim.
        """CREATE TABLE outbox (
          event_id TEXT PRIMARY KEY,
          kind TEXT NOT NULL,
          event_type TEXT NOT NULL, tenant TEXT NOT NULL, object_id TEXT NOT NULL, version BIGINT NOT NULL,
          schema_version BIGINT NOT NULL, epoch BIGINT NOT NULL, payload TEXT NOT NULL, fingerprint TEXT NOT NULL,
          state TEXT NOT NULL,
          committed_at DOUBLE PRECISION NOT NULL,
          due_at DOUBLE PRECISION,
          claimed_by TEXT,
          attempts BIGINT NOT NULL, allowed BIGINT,
          forwarded_at DOUBLE PRECISION, forwarded_evidence TEXT,
          applied_at DOUBLE PRECISION, applied_evidence TEXT,
          ended_at DOUBLE PRECISION, reason TEXT,
          CHECK (kind = 'fact' AND state IN ('recorded', 'claimed', 'forwarded', 'dead')
            OR kind = 'command' AND state IN ('planned', 'claimed', 'accepted', 'refused', 'withdrawn', 'dead')),
          CHECK ((due_at IS NULL) = (state NOT IN ('recorded', 'planned', 'claimed'))))""",
        # A second fact under one version was made again, or two writers have raced; its transaction must fail.
        "CREATE UNIQUE INDEX outbox_facts ON outbox (tenant, object_id, version) WHERE kind = 'fact'",
        "CREATE INDEX outbox_due ON outbox (kind, due_at, event_id) WHERE due_at IS NOT NULL",
        "CREATE INDEX outbox_unsettled ON outbox (kind, tenant, object_id, version)"
        " WHERE state IN ('recorded', 'planned', 'claimed', 'dead')",
        "CREATE INDEX outbox_unproven ON outbox (committed_at, event_id)"
        " WHERE applied_at IS NULL AND state NOT IN ('refused', 'withdrawn')",
        "CREATE INDEX outbox_ended ON outbox (ended_at, event_id) WHERE ended_at IS NOT NULL",
        "CREATE TABLE outbox_epoch (epoch BIGINT NOT NULL)",
        "INSERT INTO outbox_epoch VALUES (1)",
        # One row for each event that was taken; it commits with the consumer's own change.
        """CREATE TABLE inbox (
          consumer TEXT NOT NULL, event_id TEXT NOT NULL, fingerprint TEXT NOT NULL, epoch BIGINT NOT NULL,
          outcome TEXT NOT NULL, result TEXT, taken_at DOUBLE PRECISION NOT NULL,
          PRIMARY KEY (consumer, event_id),
          CHECK (outcome IN ('applied', 'stale')))""",
        """CREATE TABLE inbox_positions (
          consumer TEXT NOT NULL, tenant TEXT NOT NULL, object_id TEXT NOT NULL, version BIGINT NOT NULL,
          PRIMARY KEY (consumer, tenant, object_id))""",
        """CREATE TABLE inbox_epochs (
          consumer TEXT PRIMARY KEY, oldest BIGINT NOT NULL)""",
    ),
    # Whatever cleans up, an age limit somebody wrote in a hurry included, cannot delete what is undelivered.
    only={
        Dialect.SQLITE: (
            """CREATE TRIGGER outbox_keeps BEFORE DELETE ON outbox WHEN OLD.due_at IS NOT NULL OR OLD.state = 'dead'
              BEGIN SELECT RAISE(ABORT, 'an undelivered message cannot be deleted'); END""",
        ),
        Dialect.POSTGRESQL: (
            """CREATE FUNCTION outbox_keeps() RETURNS trigger LANGUAGE plpgsql AS
              $$ BEGIN RAISE EXCEPTION 'an undelivered message cannot be deleted'; END $$""",
            """CREATE TRIGGER outbox_keeps BEFORE DELETE ON outbox FOR EACH ROW
              WHEN (OLD.due_at IS NOT NULL OR OLD.state = 'dead') EXECUTE FUNCTION outbox_keeps()""",
        ),
    },
)
