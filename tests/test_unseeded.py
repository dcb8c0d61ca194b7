"""What another program made by chance is known by its looks only: too few cost an answer, too many a verdict."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_once.unseeded import ChangedFiles, random_looking, without_random

NOW_S = 1_800_000_000.0


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b'{"key": "2b5cd4a2-3a0e-4a3b-9f6d-0c8a1e2f3b4d"}', {"2b5cd4a2-3a0e-4a3b-9f6d-0c8a1e2f3b4d"}),
        (b"key_0123456789abcdef", {"0123456789abcdef"}),
        (b"01ARZ3NDEKTSV4RRFFQ69G5FAV", {"01ARZ3NDEKTSV4RRFFQ69G5FAV"}),
        (b"id=V1StGXR8_Z5jdHi6B-myT", {"V1StGXR8_Z5jdHi6B-myT"}),
        (b"at 2026-11-30T20:29:56.123Z!", {"2026-11-30T20:29:56.123Z"}),
        (b"1800000001 1800000001234 1800000001.25", {"1800000001", "1800000001234", "1800000001.25"}),
        (b"order_123 amount 500 4111111111111111 1000000000", set()),
        (b"feedface deadbeefdeadbeefx state=planned refunds_to_customers", set()),
    ],
    ids=["uuid", "hex", "ulid", "nanoid", "timestamp", "epoch", "numbers", "words"],
)
def test_what_looks_random_is_found(content: bytes, found: set[str]) -> None:
    """Keys and times as programs write them, and nothing that says what it means."""
    assert random_looking(content, NOW_S) == found


def test_what_is_left_is_the_same_in_each_run() -> None:
    """By it, requests made at the same time are put in order."""
    one, other = (b'{"n": 1, "key": "%s"}' % os.urandom(16).hex().encode() for _ in range(2))
    assert one != other
    assert without_random(one) == without_random(other) == b'{"n": 1, "key": "~"}'


def test_a_file_is_read_again_only_when_it_has_changed(tmp_path: Path) -> None:
    """At each request all tracked files are looked at; a pipe among them must not hang that."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "one").write_bytes(b"1")
    os.mkfifo(tmp_path / "pipe")
    files = ChangedFiles()
    assert [content for content in files.contents([tmp_path]) if content] == [b"1"]
    assert [content for content in files.contents([tmp_path]) if content] == []
    (tmp_path / "sub" / "one").write_bytes(b"22")
    assert [content for content in files.contents([tmp_path]) if content] == [b"22"]
