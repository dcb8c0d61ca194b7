"""The recording runs: what the body does without faults, what it intends, and which of its values are volatile."""

from __future__ import annotations

import contextlib
import importlib
import math
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_once import audit, inherited, seams
from pytest_once.boundaries.seam import Seam
from pytest_once.canonical import Naming, Row
from pytest_once.checks import Verdict, build_oracle
from pytest_once.clock import EPOCH_S, WINDOW_S
from pytest_once.differences import constants, differences
from pytest_once.evidence import Evidence
from pytest_once.incarnation import Channel, Died, Ended, Hung, Misuse, raised_at
from pytest_once.judgement import judge_end, judge_moment
from pytest_once.life import Birth, Life, Looped, Sight, Stage, let_live
from pytest_once.premises import Act, Premises, address_of
from pytest_once.scanning import Cell
from pytest_once.scenario import Expectations, Limits, ScenarioError
from pytest_once.seams import Prepared
from pytest_once.site import NOWHERE
from pytest_once.stores import Store
from pytest_once.stores.directory import DirectoryStore
from pytest_once.stores.ledger import LedgerStore
from pytest_once.trouble import (
    Unexplorable,
    check_announced,
    died_message,
    hung_message,
    misuse_verdict,
    parting,
    progressing_message,
)
from pytest_once.unannounced import unannounced_change
from pytest_once.world import Picture, World

SHIFT_S = 37 * 86400.0 + 18431.0
"""By how much the second recording run's clock is shifted, so that what depends on it shows."""


@dataclass(frozen=True, kw_only=True)
class FrontEnd:
    """How the engine's caller runs a body and words its errors.

    act: runs the body once, in the child. skips: exceptions that mean "skip this test". explain: the text of
    an exception for a person.
    """

    act: Act
    skips: tuple[type[BaseException], ...] = ()
    explain: Callable[[BaseException], str] = lambda error: "".join(traceback.format_exception(error))


@dataclass(frozen=True, slots=True)
class Recording:
    """What the exploration starts from. root: the world before the first life. first: the fault-free life."""

    stage: Stage
    root: Sight
    evidence: Evidence
    first: Life


@dataclass(slots=True)
class Recorder:
    """Makes the recording of one test.

    tracked: directories of the world besides once.path. seams: third parties', besides the built-in ones.
    allowed: targets outside the world that lives have touched because the test allows it; it grows for as long as
    there are lives. file_times: whether some life has read when a file was modified. until: as of a Stage.
    """

    premises: Premises
    front: FrontEnd
    expectations: Expectations
    limits: Limits
    tracked: Sequence[Path] = ()
    seams: Sequence[Seam] = ()
    allowed: set[str] = field(default_factory=set)
    file_times: bool = False
    until: float = math.inf
    _stage: Stage = field(init=False)
    _prepared: Prepared = field(init=False)
    _root: Sight = field(init=False)
    _may_track: bool = True
    _urls: dict[str, Store] = field(default_factory=dict)

    def __post_init__(self) -> None:
        premises = self.premises
        directories = [DirectoryStore(path, label, keeps_times=True) for path, label in self._directories()]
        self._prepared = seams.prepare([premises.world, *self.tracked], self.expectations.allow, self.seams)
        self._stage = Stage(
            body=self._body(self._prepared),
            world=World([LedgerStore(premises.ledger_path), *directories]),
            output=premises.output,
            life_timeout_s=self.limits.life_timeout_s,
            max_boundaries=self.limits.max_boundaries,
            until=self.until,
            deliver=premises.deliver,
            services={
                "server": lambda asked: premises.ask_server(*asked),
                "track": self._track,
                "allowed": self.allowed.add,
                "reads_times": self._reads_times,
                "secret": premises.secrets.learn,
            },
        )

        self._root = self._as_it_is()

    def _reads_times(self, _: Any) -> None:
        self.file_times = True

    @property
    def stage(self) -> Stage:
        """Where the lives are lived."""
        return self._stage

    @property
    def root(self) -> Sight:
        """The world before the first life, with everything that was tracked since."""
        return self._root

    def settle(self) -> None:
        """Wait until the last child is gone."""
        self._stage.settle()

    def record(self) -> Recording:
        """Two lives without faults, and the first once more: boundaries, intended effects, volatile values."""
        self._root = self._as_it_is()
        first = self._first_life(0)
        if len(self._root.picture.snapshots) != len(first.last.picture.snapshots if first.last else ()) or any(
            passage.sight is not None and len(passage.sight.picture.snapshots) != len(self._root.picture.snapshots)
            for passage in first.passages
        ):
            first = self._first_life(0)  # something was tracked on the way; now it is there from the start
        self._may_track = False
        self._preimport()
        seams.refresh(self._prepared)
        again = self._first_life(0)
        self._same_way(first, again)
        change = unannounced_change(self._stage.world, first, self._root)
        if change is not None:
            raise Unexplorable(Verdict.ESCAPED_EFFECT, change)
        other = self._first_life(1)
        evidence = self._learn(first, other)
        self._stage.state_of = evidence.digest
        self._same(evidence, first, again)
        self._nothing_inherited(evidence, first)
        return Recording(self._stage, self._root, evidence, first)

    def _as_it_is(self) -> Sight:
        return Sight(self._stage.world.take(), EPOCH_S, frozenset())

    def _directories(self) -> Iterator[tuple[Path, str]]:
        """The tracked directories with labels that are unique and do not depend on the machine."""
        yield self.premises.world, "once.path"
        for number, path in enumerate(self.tracked):
            yield path, "tmp_path" if number == 0 else f"tracked{number}"

    def _first_life(self, variant: int) -> Life:
        # What was there before is as old under the other clock.
        self._stage.put(self._stage.world.later(self._root.picture, variant * SHIFT_S))
        start_s = EPOCH_S + variant * SHIFT_S
        life = self._stage.live(Birth(0, variant, start_s, explain=True), frozenset(), let_live)
        ending = life.ending
        if isinstance(ending, Ended):
            if ending.skipped is not None:
                raise Unexplorable(Verdict.INCONCLUSIVE, f"skipped: {ending.skipped}", skipped=ending.skipped)
            if ending.claim != "done":
                if ending.error.startswith(ScenarioError.__name__):
                    raise Unexplorable(Verdict.INCONCLUSIVE, f"{ending.error} ({ending.site})")
                said = f"raised {ending.error} ({ending.site})" if ending.error else f"claimed {ending.claim!r}"
                raise Unexplorable(
                    Verdict.INCONCLUSIVE,
                    f"the fault-free run {said}. It must complete before crashes can say anything; make the test "
                    "pass without --once-chaos first",
                    ending.details,
                )
            return life
        if isinstance(ending, Misuse):
            raise Unexplorable(misuse_verdict(ending), f"{ending.message} ({ending.site})")
        if isinstance(ending, Hung):
            raise Unexplorable(Verdict.INCONCLUSIVE, hung_message(ending, life))
        if isinstance(ending, Died):
            raise Unexplorable(Verdict.INCONCLUSIVE, died_message(ending, life))
        assert isinstance(ending, Looped)
        raise Unexplorable(Verdict.INCONCLUSIVE, progressing_message(ending))

    def _learn(self, first: Life, other: Life) -> Evidence:
        assert first.last is not None and other.last is not None
        naming = Naming(ignore=self.expectations.ignore, clock_window=WINDOW_S, file_times=self.file_times)
        evidence = Evidence(self._stage.world, naming)
        ours = [boundary.anchor for boundary in first.boundaries]
        theirs = [boundary.anchor for boundary in other.boundaries]
        if ours != theirs:
            raise Unexplorable(
                Verdict.NONDETERMINISTIC,
                "two fault-free runs, the second with another clock and other randomness, passed different "
                f"boundaries: {_parted(first, other)}. What the body does must not depend on "
                "random values or the date; seed or inject them in the test",
            )
        check_announced(evidence, first, 0)
        evidence.learn_providers(first.last)
        evidence.oracle = build_oracle(
            self.expectations,
            evidence.intents(first.last),
            evidence.effects(first.last),
            evidence.effects(other.last),
            (evidence.mask(first.last.tokens), evidence.mask(other.last.tokens)),
        )
        columns = self._volatile_columns(naming, first, other)
        evidence.naming = replace(naming, columns=columns, constants=self._constants(naming, columns, first, other))
        last = first.last
        assert isinstance(first.ending, Ended)
        finding = judge_moment(evidence, last) or judge_end(evidence, self.expectations, last, first.ending)
        if finding is not None:
            key = f"{finding.key}: " if finding.key is not None else ""
            raise Unexplorable(
                finding.verdict,
                f"already without any fault: {key}{finding.detail}. Correct the code, or what the test intends (key=, "
                "keys=, once.intend)",
            )
        return evidence

    def _volatile_columns(self, naming: Naming, first: Life, other: Life) -> frozenset[str]:
        """Columns whose values depend on clock or randomness, as far as renaming does not explain them."""
        columns: set[str] = set()
        world = self._stage.world
        for (one, two), boundary in zip(_paired(first, other), [*first.boundaries, None], strict=True):
            difference = differences(
                world.rows(one.picture),
                world.rows(two.picture),
                replace(naming, tokens=one.tokens),
                replace(naming, tokens=two.tokens),
                one.now_s,
                two.now_s,
            )
            if difference.structural:
                before = f"before {boundary.target} at {boundary.site}" if boundary is not None else "at the end"
                raise Unexplorable(
                    Verdict.NONDETERMINISTIC,
                    f"two fault-free runs left different worlds {before}: {difference.structural}. What is stored "
                    "must not depend on random values or the date beyond the values themselves",
                )
            columns |= difference.volatile
        return frozenset(columns)

    def _constants(
        self, naming: Naming, columns: frozenset[str], first: Life, other: Life
    ) -> frozenset[tuple[str, Cell]]:
        """Numbers that both runs have in a volatile column."""
        ours, theirs = (
            constants(
                (
                    (self._stage.world.rows(sight.picture), replace(naming, tokens=sight.tokens))
                    for sight in life.sights
                    if sight is not None
                ),
                columns,
            )
            for life in (first, other)
        )
        return frozenset(ours & theirs)

    @staticmethod
    def _same_way(first: Life, again: Life) -> None:
        """The same schedule, run twice, must pass the same boundaries."""
        if [b.anchor for b in first.boundaries] != [b.anchor for b in again.boundaries]:
            raise Unexplorable(
                Verdict.NONDETERMINISTIC,
                "the fault-free run was repeated and took another way: "
                f"{_parted(first, again)}. Thread timing, "
                "set order, or something outside the tracked world decides what the body does",
            )

    def _same(self, evidence: Evidence, first: Life, again: Life) -> None:
        """The same schedule, run twice, must leave the same worlds."""
        for (one, two), boundary in zip(_paired(first, again), [*first.boundaries, None], strict=True):
            if evidence.digest(one) != evidence.digest(two):
                changes = self._stage.world.changes(one.picture, two.picture)
                before = f"before {boundary.target} at {boundary.site}" if boundary is not None else "at the end"
                raise Unexplorable(
                    Verdict.NONDETERMINISTIC,
                    f"the fault-free run was repeated and left another world {before}: "
                    f"{'; '.join(changes[:3]) or 'rows in another order'}. Thread timing, set order, or something "
                    "outside the tracked world decides what is stored. Store something that is the same each time, or "
                    "name the column in ignore= if it decides nothing",
                )

    def _nothing_inherited(self, evidence: Evidence, first: Life) -> None:
        """What was drawn or read before the fork must not reach the world: a restart would bring other values."""
        assert first.last is not None
        rows = [
            *self._stage.world.rows(first.last.picture),
            *(Row("the Idempotency-Key", ("header",), (key,)) for key in evidence.keys_sent(first.last)),
        ]
        place = inherited.place_in(rows, times=all(boundary.kind != "process" for boundary in first.boundaries))
        if place is not None:
            raise Unexplorable(
                Verdict.INCONCLUSIVE,
                f"{place} holds a random value or a time from before the incarnation began (made at import, in a "
                "default argument, or in a module or session fixture). A restarted process makes another one, and the "
                "explored ones all had this. Make it in the test or in a function-scoped fixture; if it is a fixed "
                "input, write it as a constant",
            )

    def _track(self, argument: Any) -> str | None:
        """Track what a life names: a directory, or a URL at a virtual time, of which the address to use is returned."""
        if isinstance(argument, str):
            self._track_directory(argument)
            return None
        target, now_s = argument
        store = self._opened(target)
        if began := getattr(store, "began", None):
            began(now_s)
        return address_of(store, target)

    def _opened(self, target: str) -> Store:
        known = self._urls.get(target)
        if known is not None:
            return known
        self._may_still_track(target)
        store = self.premises.open(target)
        self._add(store)
        self._urls[target] = store
        return store

    def _track_directory(self, argument: str) -> None:
        path = Path(argument)
        stores = [store for store in self._stage.world.stores if isinstance(store, DirectoryStore)]
        if any(path == store.root or store.root in path.parents for store in stores):
            return
        self._may_still_track(str(path))
        self._add(DirectoryStore(path, f"track{len(stores)}", keeps_times=True))

    def _may_still_track(self, target: str) -> None:
        if not self._may_track:
            raise ScenarioError(
                f"once.track({target!r}) was not called in the fault-free run, so its first state is not known; "
                "call it at the beginning of the test, always"
            )

    def _add(self, store: Store) -> None:
        self._stage.world.add(store)
        self._root = replace(
            self._root, picture=Picture((*self._root.picture.snapshots, (store.name, store.snapshot())))
        )

    def _preimport(self) -> None:
        """Import here what the body imports, or every child pays for it again."""
        for name in sorted(self._stage.modules):
            if name.split(".")[0] in ("__main__", "__mp_main__"):
                continue
            with contextlib.suppress(ImportError):
                importlib.import_module(name)

    # -- the child -----------------------------------------------------------------------------------

    def _body(self, prepared: Prepared) -> Callable[[Channel, Birth], Ended]:
        once = self.premises.once
        front = self.front
        blocked = tuple(cls for cls in self.expectations.blocked if isinstance(cls, type))
        definite = self.expectations.definite_failure
        known = frozenset(sys.modules)

        def body(channel: Channel, birth: Birth) -> Ended:
            clock = seams.install(prepared, channel, birth, once)
            once.begin(channel, clock, birth.number)
            once.ledger.begin_incarnation(birth.number + 1)
            claim, details = "done", ""
            error: BaseException | None = None
            skipped: str | None = None
            try:
                front.act(once)
                claim = once.claimed or "done"
            except front.skips as skip:
                skipped = str(skip)
            except BaseException as raised:
                error = raised
                claim = (
                    "unknown"
                    if isinstance(raised, blocked)
                    else "failed"
                    if isinstance(raised, definite)
                    else once.claimed or "none"
                )
                details = front.explain(raised) if birth.explain else ""
            audit.finish()
            return Ended(
                claim,
                0.0,
                (),
                claimed=claim == once.claimed and not isinstance(error, (*blocked, *definite)),
                error="" if error is None else f"{type(error).__name__}: {error}".rstrip(": "),
                site=NOWHERE if error is None else raised_at(error),
                details=details,
                skipped=skipped,
                modules=tuple(sorted(set(sys.modules) - known)),
                incarnation_was_read=once.incarnation_was_read,
            )

        return body


def _paired(one: Life, two: Life) -> list[tuple[Sight, Sight]]:
    return [(a, b) for a, b in zip(one.sights, two.sights, strict=True) if a is not None and b is not None]


def _parted(one: Life, other: Life) -> str:
    """Where two lives took different ways, for a person."""
    at = parting(one, other)
    ours, theirs = one.boundaries[at : at + 1], other.boundaries[at : at + 1]
    if ours and theirs:
        return f"number {at + 1} was {ours[0].target} ({ours[0].site}), then {theirs[0].target} ({theirs[0].site})"
    (extra,) = ours or theirs
    return f"{extra.target} ({extra.site}) was passed only once"
