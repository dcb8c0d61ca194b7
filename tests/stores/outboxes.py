"""A transactional outbox in PostgreSQL, as each driver writes it, and its wrong twin.

A body records a job and a message in one transaction, then relays what has not been sent. The message's id is the
idempotency key, and is made by the database.
"""

from __future__ import annotations

import asyncpg  # type: ignore[import-untyped]
import psycopg
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from once_fakes import Provider

RECORD = "INSERT INTO jobs (task, state) VALUES ('t1', 'new') ON CONFLICT DO NOTHING RETURNING id"
MESSAGE = "INSERT INTO outbox (job, body) SELECT id, jsonb_build_object('task', task) FROM jobs WHERE id = "
PENDING = "SELECT id::text, job, body->>'task' FROM outbox WHERE NOT sent"
SENT = "UPDATE outbox SET sent = true WHERE id = "
DONE = "UPDATE jobs SET state = 'done' WHERE id = "


class Refused(Exception):
    """The provider did not accept the request."""


def send(provider: Provider, key: str, task: str) -> None:
    reply = provider.call("refund", {"task": task}, key=key)
    if reply.status >= 300:
        raise Refused(reply.status)


def with_psycopg(url: str, provider: Provider) -> None:
    with psycopg.connect(url) as connection:
        recorded = connection.execute(RECORD).fetchone()
        if recorded is not None:
            connection.execute(MESSAGE + "%s", recorded)
        connection.commit()
        for key, job, task in connection.execute(PENDING).fetchall():
            connection.commit()
            send(provider, key, task)
            with connection.transaction():
                connection.execute(SENT + "%s", (key,))
                connection.execute(DONE + "%s", (job,))


async def with_async_psycopg(url: str, provider: Provider) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        async with connection.transaction():
            recorded = await (await connection.execute(RECORD)).fetchone()
            if recorded is not None:
                await connection.execute(MESSAGE + "%s", recorded)
        for key, job, task in await (await connection.execute(PENDING)).fetchall():
            send(provider, key, task)
            async with connection.pipeline(), connection.transaction():
                await connection.execute(SENT + "%s", (key,))
                await connection.execute(DONE + "%s", (job,))


async def with_asyncpg(url: str, provider: Provider) -> None:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            recorded = await connection.fetchval(RECORD)
            if recorded is not None:
                await connection.execute(MESSAGE + "$1", recorded)
        for key, job, task in await connection.fetch(PENDING):
            send(provider, key, task)
            async with connection.transaction():
                await connection.execute(SENT + "$1", key)
                await connection.executemany(DONE + "$1", [(job,)])
    finally:
        await connection.close()


def with_sqlalchemy(url: str, provider: Provider) -> None:
    text = sqlalchemy.text
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        with engine.begin() as connection:
            recorded = connection.execute(text(RECORD)).scalar()
            if recorded is not None:
                connection.execute(text(MESSAGE + ":job"), {"job": recorded})
        with engine.connect() as connection:
            pending = connection.execute(text(PENDING)).all()
        for key, job, task in pending:
            send(provider, key, task)
            with engine.begin() as connection:
                connection.execute(text(SENT + "cast(:key AS uuid)"), {"key": key})
                connection.execute(text(DONE + ":job"), {"job": job})
    finally:
        engine.dispose()


async def with_async_sqlalchemy(url: str, provider: Provider) -> None:
    text = sqlalchemy.text
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
    try:
        async with engine.begin() as connection:
            recorded = (await connection.execute(text(RECORD))).scalar()
            if recorded is not None:
                await connection.execute(text(MESSAGE + ":job"), {"job": recorded})
        async with engine.connect() as connection:
            pending = (await connection.execute(text(PENDING))).all()
        for key, job, task in pending:
            send(provider, key, task)
            async with engine.begin() as connection:
                await connection.execute(text(SENT + "cast(:key AS uuid)"), {"key": key})
                await connection.execute(text(DONE + ":job"), {"job": job})
    finally:
        await engine.dispose()


def act_then_mark(url: str, provider: Provider) -> None:
    """Wrong: between the request and the mark a crash makes it act again."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("INSERT INTO jobs (task, state) VALUES ('t1', 'new') ON CONFLICT DO NOTHING")
        if connection.execute("SELECT FROM jobs WHERE state = 'new'").fetchone() is not None:
            send(provider, "t1", "t1")
            connection.execute("UPDATE jobs SET state = 'done'")
