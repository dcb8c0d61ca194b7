"""K06: a client reuses one key for two endpoints, and the second request is answered with the first one's reply.

It never runs, and nobody is told. Report: nensii21/devlink#1195.
"""

from __future__ import annotations

from dataclasses import replace

import httpx

from once_fakes import CLIENT_KEY, Contract
from pytest_once import Once, Verdict, explore
from tests.incidents.models import convicted_undisturbed, database, exactly_once

UNBOUND = replace(CLIENT_KEY, name="unbound", on_mismatch="replay")


def client(once: Once, keys: tuple[str, str], contract: Contract) -> None:
    api = once.provider("api", contract=contract)
    with api.router, httpx.Client(base_url=api.base_url, verify=False) as http:
        for path, key in zip(("/profiles", "/invitations"), keys, strict=True):
            body = {"member": "member_1"}
            http.post(path, json=body, headers={"Idempotency-Key": key}).raise_for_status()


def cached(once: Once, *, bound: bool) -> None:
    """The same as a cache in front of the handlers, keyed by user and key."""
    with database(once, "cache", "replies(key TEXT PRIMARY KEY); profiles(member); invitations(member)") as db:
        once.count("cache.db", "SELECT 'profile', count(*) FROM profiles")
        once.count("cache.db", "SELECT 'invitation', count(*) FROM invitations", name="invitations")
        for table in ("profiles", "invitations"):
            key = f"user_1/key_1/{table}" if bound else "user_1/key_1"
            db.execute("BEGIN")
            if db.execute("INSERT OR IGNORE INTO replies VALUES (?)", (key,)).rowcount:
                db.execute(f"INSERT INTO {table} VALUES ('member_1')")
            db.execute("COMMIT")


def test_the_second_request_is_taken_for_a_repetition() -> None:
    report = explore(lambda once: client(once, ("key_1", "key_1"), UNBOUND), soft_faults=0)
    assert report.verdict is Verdict.CONFLICT_MISSED
    assert "POST /invitations" in report.problem


def test_behind_a_cache_of_its_own_the_write_is_lost() -> None:
    report = explore(lambda once: cached(once, bound=False), soft_faults=0, keys=["profile", "invitation"])
    convicted_undisturbed(report, Verdict.OMISSION, expected=1, actual=0, key="invitation")


def test_a_key_for_each_operation() -> None:
    exactly_once(explore(lambda once: client(once, ("key_1", "key_2"), UNBOUND), soft_faults=0))
    exactly_once(explore(lambda once: cached(once, bound=True), soft_faults=0))
