"""The ten-question review, on an outbox that is right and on one that is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from examples.outbox_review import corrected, naive
from pytest_once.review.__main__ import main, told
from pytest_once.review.running import Said, review

YES, NO, UNKNOWN = Said.YES, Said.NO, Said.UNKNOWN


@pytest.mark.slow
def test_the_reference_answers_yes_ten_times(capsys: pytest.CaptureFixture[str]) -> None:
    """S2.12: what we offer as correct stands the review, both drills with real SIGKILL included."""
    assert main(["examples.outbox_review.corrected:ADAPTER"]) == 0, capsys.readouterr().out
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.endswith("10 yes, 0 no, 0 unknown")
    for drill in ("committed, not sent", "sent, not recorded"):
        assert f"{drill} (x@" in printed
    assert printed.count("killed, started again, applied once") == 2


@pytest.mark.slow
def test_a_naive_outbox_gets_the_right_noes(capsys: pytest.CaptureFixture[str]) -> None:
    """S2.12: each no names what went wrong on which schedule, and how to correct it; what could not be asked is no yes.

    The known-bad sample of the review itself."""
    rows = {row.number: row for row in review(naive.ADAPTER, max_states=25)}
    assert {number: row.said for number, row in rows.items()} == {
        1: NO, 2: UNKNOWN, 3: NO, 4: NO, 5: NO, 6: NO, 7: NO, 8: NO, 9: UNKNOWN, 10: NO,
    }  # fmt: skip
    for number, why in {
        1: "a change without its message, on x@",
        2: "the adapter has no ask, kind, dead_letters",
        3: "a message is sent again under another id",
        4: "change 1 was applied 2 times",
        5: "two relays send a message at the same time",
        6: "change 1 was lost, on x@",
        7: "an older version replaces a newer one",
        8: "a message is deleted before it was sent",
        9: "the adapter has no evidence",
        10: "change 1 was lost, on x@",
    }.items():
        assert why in " ".join(rows[number].evidence), (number, rows[number].evidence)
    lines = " ".join(told(rows[1]))
    assert "> Write the message into a table of the same database" in lines


class Silent(corrected.Outbox):
    """The reference, which says nothing of its leases."""

    lease_s = None  # type: ignore[assignment]


class SilentAdapter(corrected.Adapter):
    def open(self, directory: Path, *_: str) -> corrected.Outbox:
        return Silent(directory)


def test_what_cannot_be_asked_is_unknown_and_no_pass(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """S2.12: an outbox that says nothing of its leases has not shown that they end."""
    monkeypatch.setattr("examples.outbox_review.corrected.ADAPTER", SilentAdapter())
    assert main(["examples.outbox_review.corrected:ADAPTER", "--only", "5", "--max-states", "1"]) == 1
    assert "cannot be asked, the adapter has no lease_s" in capsys.readouterr().out


class Idle(corrected.Outbox):
    """Does nothing, and says so."""

    def put(self, number: int, before_commit: Callable[[], None]) -> None:
        pass


class Pretending(Idle):
    """Does nothing, and says that all is there."""

    def changed(self, number: int) -> bool:
        return True

    stored = changed


class Hasty(corrected.Outbox):
    """Does it, and lets nobody look before the commit."""

    def put(self, number: int, before_commit: Callable[[], None]) -> None:
        super().put(number, lambda: None)


@pytest.mark.parametrize(
    ("outbox", "why"),
    [
        (Idle, "has not called before_commit()"),
        (Pretending, "changed(1) is true before that change was made"),
        (Hasty, "has not called before_commit()"),
    ],
)
def test_an_outbox_that_does_nothing_has_no_yes(outbox: type[corrected.Outbox], why: str) -> None:
    """S2.12: where nothing happens nothing goes wrong, and that is no answer."""

    class Adapter(corrected.Adapter):
        def open(self, directory: Path, *_: str) -> corrected.Outbox:
            return outbox(directory)

    (row,) = review(Adapter(), questions=(1,))
    assert row.said is UNKNOWN, row.evidence
    assert why in " ".join(row.evidence)


def test_a_search_that_is_not_finished_is_unknown() -> None:
    """S2.12: a limit that bites has not answered the question."""
    (row,) = review(corrected.ADAPTER, questions=(9,), max_states=2)
    assert row.said is UNKNOWN
    assert "not finished" in row.evidence[0]


@pytest.mark.parametrize(
    "named", ["no_such_module:ADAPTER", "examples.outbox_review.naive:NOTHING", "json:JSONDecoder"]
)
def test_a_wrong_name_is_a_wrong_call(named: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The remedy is in the message."""
    with pytest.raises(SystemExit) as ended:
        main([named])
    assert ended.value.code == 2
    assert "give module:name" in capsys.readouterr().err or named == "json:JSONDecoder"
