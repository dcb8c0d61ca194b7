"""Two worlds are one state exactly when nothing that code can decide by differs."""

from __future__ import annotations

import string
import time
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_once import scanning
from pytest_once.canonical import (
    Naming,
    Row,
    canonical_rows,
    digest,
    masked_text,
    occurring,
)
from pytest_once.differences import describe_changes, differences
from pytest_once.scanning import Cell

NOW = 1_700_000_000.0
TIMED = Naming(clock_window=(NOW - 86_400, NOW + 864_000))


def row(*cells: Cell, place: str = "agent.db/tasks") -> Row:
    return Row(place, tuple("abcdefgh"[: len(cells)]), cells)


def of(rows: list[Row], naming: Naming | None = None, now: float = NOW) -> str:
    return digest(canonical_rows(rows, naming or Naming(), now))


def minted(*tokens: str) -> Naming:
    return Naming(tokens=frozenset(tokens))


def iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


A, B, C = (str(uuid.UUID(int=n, version=4)) for n in (10**30, 2 * 10**30, 3 * 10**30))


def test_types_never_collide() -> None:
    """A digest that took 1 for "1" would merge states which code tells apart."""
    cells: list[Cell] = [1, 1.0, "1", b"1", True, None, "", b"", 0, False, -0.0, 0.0, "None"]
    assert len({of([row(cell)]) for cell in cells}) == len(cells)


def test_borders_between_cells_rows_and_places_count() -> None:
    """The encoding must not let neighbours flow together."""
    forms = [
        [row("ab", "c")],
        [row("a", "bc")],
        [row("ab"), row("c")],
        [row("abc")],
        [row("abc", place="other")],
        [],
    ]
    assert len({of(rows) for rows in forms}) == len(forms)


def test_a_cell_of_a_foreign_type_is_refused() -> None:
    """A third-party store that returns something else gets an explanation, not a wrong digest."""
    with pytest.raises(TypeError, match="convert it in the store's rows"):
        of([Row("x", ("a",), (object(),))])  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", ["{}", "key-{}", "refund_{}", "a:{}/b", '{{"id": "{}"}}', "{}-{}", "({})"])
def test_tokens_are_found_glued_to_other_text(shape: str) -> None:
    """Keys are built as "refund_<hex>" and "key-<uuid>" far more often than they stand alone."""
    for one, other in ((A, B), (uuid.UUID(A).hex, uuid.UUID(B).hex), ("x_-Zq9-_w", "_aB-3-x_Q")):
        here, there = minted(one), minted(other)
        assert of([row(shape.format(one, one))], here) == of([row(shape.format(other, other))], there)
        assert of([row(shape.format(one, one))]) != of([row(shape.format(other, other))])


def test_tokens_inside_longer_words_are_left_alone() -> None:
    """ "beef" was minted, "beefsteak" was not."""
    naming = minted("beef")
    for text in ("beefsteak", "xbeef", "beef1"):
        assert canonical_rows([row(text)], naming, NOW)[0][2] == (text,)
        assert masked_text(text, naming) == text
    assert masked_text("roast-beef_1", naming) == "roast-~_1"


def test_equality_among_tokens_is_kept() -> None:
    """A retry under the old key and a retry under a new one are different states."""
    naming = minted(A, B)
    assert of([row(A), row(A)], naming) != of([row(A), row(B)], naming)
    assert of([row(A), row(B)], naming) == of([row(B), row(A)], naming)


def test_a_token_is_one_name_in_text_number_and_blob() -> None:
    """A uuid may be stored as text here and as sixteen bytes there."""
    raw_a, raw_b = uuid.UUID(A).bytes, uuid.UUID(B).bytes
    naming = minted(A, B, "41234", "41235")
    assert of([row(A, raw_a)], naming) == of([row(B, raw_b)], naming)
    assert of([row(A, raw_a)], naming) != of([row(A, raw_b)], naming)
    assert of([row("pid-41234", 41234)], naming) == of([row("pid-41235", 41235)], naming)
    assert of([row("pid-41234", 41234)], naming) != of([row("pid-41234", 41235)], naming)
    assert of([row(A, uuid.UUID(A).hex)], naming) == of([row(B, uuid.UUID(B).hex)], naming)
    assert of([row(A, uuid.UUID(A).hex)], naming) != of([row(A, uuid.UUID(B).hex)], naming)
    assert of([row(A)], naming) != of([row(uuid.UUID(A).hex)], naming)


def test_text_inside_blobs_is_renamed() -> None:
    """Frameworks store JSON and msgpack in BLOB columns."""
    assert of([row(f'{{"id":"{A}"}}\xff'.encode())], minted(A)) == of([row(f'{{"id":"{B}"}}\xff'.encode())], minted(B))


def test_literal_text_that_looks_like_a_name_is_not_one() -> None:
    """User data may contain "~1" and "@0"."""
    naming = replace(minted(A, B), clock_window=TIMED.clock_window)
    texts = [f"{A} ~2", f"{A} {B}", f"~1 {B}", "~1 ~2", f"{A} ~~2", f"@0 {A}", f"{iso(NOW)} {A}"]
    assert len({of([row(text)], naming) for text in texts}) == len(texts)


def test_short_tokens_are_not_renamed() -> None:
    """A minted "1" would make every 1 in the world a name, and merge states that differ."""
    naming = minted("1", "2")
    assert of([row(1, "1")], naming) != of([row(2, "2")], naming)


def test_places_with_tokens_are_renamed_whatever_their_order() -> None:
    """A file named after a uuid comes first in one run and last in another."""

    def files(first: str, second: str) -> list[Row]:
        names = ("content",)
        rows = [Row(f"out/{first}.json", names, ("paid",)), Row(f"out/{second}.json", names, ("new",))]
        return sorted([*rows, Row("out/index", names, (f"{first} {second}",))], key=lambda r: r.place)

    assert of(files(A, B), minted(A, B)) == of(files(C, B), minted(C, B)) == of(files(B, A), minted(A, B))
    assert of(files(A, B), minted(A, B)) != of(files(A, B))


def test_unordered_rows_do_not_depend_on_their_order() -> None:
    """Rows WITHOUT ROWID are sorted by keys, and keys may be random."""
    rows = [Row("a.db/t", ("k", "v"), (key, value), ordered=False) for key, value in ((A, 1), (B, 2))]
    assert of(rows, minted(A, B)) == of(rows[::-1], minted(A, B))


def test_ignored_columns_and_files_drop_out() -> None:
    """Each documented way to write a pattern works."""

    def world(attempts: int, log: str) -> list[Row]:
        return [
            Row("data/agent.db/tasks", ("id", "attempts"), (1, attempts)),
            Row("data/run.log", ("content",), (log,)),
        ]

    for pattern in (
        "tasks.attempts",
        "*.attempts",
        "agent.db/tasks.attempts",
        "data/agent.db/tasks.att*",
        "agent.db",
    ):
        for glob in ("*.log", "run.log", "data/run.log"):
            naming = Naming(ignore=(pattern, glob))
            assert of(world(1, "a"), naming) == of(world(2, "b"), naming), (pattern, glob)
    naming = Naming(ignore=("*.updated_at", "*.txt", "task.attempts"))
    assert len({of(world(n, log), naming) for n in (1, 2) for log in "ab"}) == 4


def test_volatile_columns_keep_equality_type_emptiness_and_links() -> None:
    """Renaming a whole cell must not hide what code may decide by."""
    naming = Naming(tokens=frozenset({A, B}), columns=frozenset({"agent.db/tasks.a"}))
    one, other = "k3j9x2", "p0q8z5"
    assert of([row(one), row(one)], naming) == of([row(other), row(other)], naming)
    assert of([row(one), row(one)], naming) != of([row(one), row(other)], naming)
    assert of([row(f"try 1, {one}")], naming) != of([row(f"try 2, {one}")], naming)
    assert of([row(f"done {one}")], naming) != of([row(f"sending {one}")], naming)
    assert of([row("x", 1)], naming) != of([row("x", 2)], naming)
    assert len({of([row(cell)], naming) for cell in (None, "x", 5, "", b"x", 0.5)}) == 6
    assert of([row(f"{one} {A}", A)], naming) == of([row(f"{other} {B}", B)], naming)
    assert of([row(f"{one} {A}", A)], naming) != of([row(f"{other} {A}", B)], naming)


@pytest.mark.parametrize("scale", [1, 10**3, 10**6, 10**9])
@pytest.mark.parametrize("kind", [int, float, str, "isoformat"])
def test_a_lease_before_now_differs_from_one_after(kind: type | str, scale: int) -> None:
    """Order with respect to now is what a lease is; the distance is not."""

    def lease(seconds: float) -> list[Row]:
        return [row(iso(seconds) if isinstance(kind, str) else kind(int(seconds) * scale))]

    assert of(lease(NOW + 30), TIMED) == of(lease(NOW + 60), TIMED)
    assert of(lease(NOW - 30), TIMED) == of(lease(NOW - 60), TIMED)
    assert len({of(lease(NOW + s), TIMED) for s in (-30, 0, 30)}) == 3
    assert of(lease(NOW + 30), TIMED) == of(lease(NOW + 130), TIMED, NOW + 100)


def test_order_and_equality_among_instants_are_kept() -> None:
    """Which of two leases ends first decides who may act."""
    assert of([row(NOW + 1, NOW + 2)], TIMED) == of([row(NOW + 1, NOW + 90)], TIMED)
    assert of([row(NOW + 1, NOW + 2)], TIMED) != of([row(NOW + 2, NOW + 1)], TIMED)
    assert of([row(NOW + 1, NOW + 1)], TIMED) != of([row(NOW + 1, NOW + 2)], TIMED)


@pytest.mark.parametrize(
    "text",
    [
        "2023-11-14T22:13:20Z",
        "2023-11-14 22:13:20+00:00",
        "2023-11-14T22:13:20.000+00:00",
        "2023-11-14T23:13:20+0100",
        "2023-11-14T17:13:20-05",
        "1700000000000",
        "1700000000.0",
        'lease until "2023-11-14T22:13:20Z".',
    ],
)
def test_written_instants_are_read(text: str) -> None:
    """All of these are the same moment, in the ways code writes moments."""
    form = canonical_rows([row(text), row(NOW)], TIMED, NOW)
    assert form[1][2] == (("@", 0, "float", 1),)
    assert form[-1] == ("@now", 0)
    assert "@0" in form[0][2][0][1]


@pytest.mark.parametrize(
    "text", ["2023-13-14T22:13:20", "2001-01-01T00:00:00Z", "0.1700000000", "x1700000000", "170000000"]
)
def test_what_is_no_instant_stays(text: str) -> None:
    """Ordinary numbers and dates of the business are data."""
    assert canonical_rows([row(text, 500, 1.5)], TIMED, NOW)[0][2] == (text, 500, 1.5)


def test_a_timestamp_without_offset_is_ranked_as_utc_and_as_local(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may mean either; a lease past in one reading only must not be merged with one past in both."""
    monkeypatch.setenv("TZ", "UTC-2")
    time.tzset()
    try:
        local = timezone(timedelta(hours=2))

        def naive(seconds: float) -> list[Row]:
            return [row(datetime.fromtimestamp(seconds, local).replace(tzinfo=None).isoformat())]

        assert len({of(naive(NOW + s), TIMED) for s in (-30, 0, 30)}) == 3
    finally:
        monkeypatch.undo()
        time.tzset()


def test_differences_names_columns_that_nothing_explains() -> None:
    """Tokens and instants explain a difference; anything else makes the column volatile."""

    def world(token: str, start: float, noise: str) -> list[Row]:
        return [
            Row("a.db/t", ("id", "at", "noise", "n"), (token, start + 1, noise, 7)),
            Row(f"out/{token}.txt", ("content",), (noise,)),
        ]

    found = differences(
        world(A, NOW, "k3j9x2"),
        world(B, NOW + 5000, "p0q8z5"),
        replace(TIMED, tokens=frozenset({A})),
        replace(TIMED, tokens=frozenset({B})),
        NOW + 2,
        NOW + 5002,
    )
    assert found.structural is None
    assert found.volatile == {"a.db/t.noise", "out/~.txt.content"}
    assert found.unstable == frozenset()
    named = replace(TIMED, columns=found.volatile)
    assert of(world(A, NOW, "k3j9x2"), replace(named, tokens=frozenset({A})), NOW + 2) == of(
        world(B, NOW, "p0q8z5"), replace(named, tokens=frozenset({B})), NOW + 2
    )


def test_one_unexplained_column_does_not_drag_others_along() -> None:
    """An extra token in a noisy column shifts later numbers; the later columns are innocent."""
    rows_a, rows_b = [row(A, A), row("-", B)], [row("quiet", A), row("-", B)]
    found = differences(rows_a, rows_b, minted(A, B), minted(A, B), NOW, NOW)
    assert found.volatile == {"agent.db/tasks.a"}


def test_random_equalities_are_called_unstable() -> None:
    """Renaming cannot hide that two cells are equal in one run and not in the other."""
    found = differences([row("x"), row("x")], [row("y"), row("z")], Naming(), Naming(), NOW, NOW)
    assert found.unstable == found.volatile == {"agent.db/tasks.a"}


@pytest.mark.parametrize(
    ("rows_a", "rows_b", "message"),
    [
        ([row(1)], [row(1), row(2)], "agent.db/tasks: 1 row in one run, 2 rows in the other"),
        ([row(1)], [row(1, 2)], "agent.db/tasks: columns a in one run, a, b in the other"),
        ([row(1, place="x"), row(1)], [row(1)], "x: 1 row in one run, 0 rows in the other"),
    ],
)
def test_differences_in_structure_name_the_place(rows_a: list[Row], rows_b: list[Row], message: str) -> None:
    """Two fault-free runs with other rows are nondeterministic: say where."""
    assert differences(rows_a, rows_b, Naming(), Naming(), NOW, NOW).structural == message


def test_differences_compares_types() -> None:
    """1 and True are equal to Python and different to a database."""
    assert differences([row(1)], [row(True)], Naming(), Naming(), NOW, NOW).volatile == {"agent.db/tasks.a"}


def test_changes_are_told_for_people() -> None:
    """The message that a search stays open lists what to put in ignore=."""
    before = [row(3, "x"), Row("notes.txt", ("content",), ("a",))]
    after = [row(4, "x"), row(1, "y"), Row("notes.txt", ("content",), ("b" * 90,))]
    assert describe_changes(before, after) == [
        "agent.db/tasks: 1 row -> 2 rows",
        "agent.db/tasks.a: 3 -> 4",
        f"notes.txt: 'a' -> '{'b' * 56}...",
    ]
    assert describe_changes(before, before) == []


def test_a_growing_set_of_tokens_is_the_same_as_a_fresh_one() -> None:
    """Scanners take over each other's work; the result must not depend on which came before."""
    rows = [row(f"{A} {B}", f"key-{C}", f"{uuid.UUID(B).hex}", "plain") for _ in range(2)]
    sets = [(), (A,), (A, B), (A, B, C), (B,), (C, B), ()]
    grown = [canonical_rows(rows, minted(*tokens), NOW) for tokens in sets]
    for tokens, found in zip(sets, grown, strict=True):
        canonical_rows([], minted(f"unrelated-{tokens}"), NOW)  # what is taken over from here is empty
        scanning.scanner_for.cache_clear()
        assert canonical_rows(rows, minted(*tokens), NOW) == found, tokens
    assert len({digest(found) for found in grown}) == len(set(map(frozenset, sets)))


def test_occurring_keeps_only_tokens_that_matter() -> None:
    """A path mints many texts; those which left no trace need not be carried on."""
    rows = [row(f"key-{A}", 41234), Row(f"{C}.txt", ("content",), (uuid.UUID(B).bytes,))]
    tokens = frozenset({A, B, C, "41234", "41235", "feedbeef"})
    assert occurring(rows, tokens) == tokens - {"41235", "feedbeef"}


hexes = st.text("0123456789abcdef", min_size=32, max_size=32)
urlsafe = st.text(string.ascii_letters + string.digits + "-_", min_size=16, max_size=22).filter(
    lambda text: any(c.isalnum() for c in text)
)
shapes = st.sampled_from(["{}", "key-{}", "refund_{}", "a {} b", '["{}"]', "{}:x"])


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[tuple[str, int]], list[str], list[str]]:
    """Cells as (shape, index of token), and two sets of as many distinct tokens."""
    kind = draw(st.sampled_from([hexes, urlsafe, st.uuids(version=4).map(str)]))
    # Equal dashes keep tokens from hiding in each other's seams.
    size = draw(st.integers(1, 5))
    tokens = draw(
        st.lists(
            kind.map(lambda t: t.strip("-_")).filter(lambda t: len(t) >= 8),
            min_size=2 * size,
            max_size=2 * size,
            unique=True,
        )
    )
    cells = draw(st.lists(st.tuples(shapes, st.integers(0, size - 1)), min_size=1, max_size=8))
    return cells, tokens[:size], tokens[size:]


@given(worlds())
def test_consistent_renaming_keeps_the_digest(
    world: tuple[list[tuple[str, int]], list[str], list[str]],
) -> None:
    """The same program with other randomness is in the same state."""
    cells, ours, theirs = world
    one, other = ([row(shape.format(names[n])) for shape, n in cells] for names in (ours, theirs))
    assert of(one, minted(*ours)) == of(other, minted(*theirs))


@given(worlds(), st.data())
def test_inconsistent_renaming_changes_the_digest(
    world: tuple[list[tuple[str, int]], list[str], list[str]], data: st.DataObject
) -> None:
    """Rename one of several occurrences of a token: an equality is lost, and the state is another."""
    cells, ours, theirs = world
    cells = [*cells, cells[0]]
    one = [row(shape.format(ours[n])) for shape, n in cells]
    changed = data.draw(st.integers(0, len(cells) - 1).filter(lambda i: [n for _, n in cells].count(cells[i][1]) > 1))
    other = [row(shape.format(theirs[0] if i == changed else ours[n])) for i, (shape, n) in enumerate(cells)]
    naming = minted(*ours, *theirs)
    assert of(one, naming) != of(other, naming)
