"""What retries after time-outs cost in a day, without the gate and with it, at one's own rates."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """calls: in a day. ambiguous: share that ends without an answer. acted: share of those that had acted.

    duplicate_cost, person_cost: money for one duplicate, and for one case that a person has to decide.
    resolved: share of the UNKNOWN that look-ups decide. Raises ValueError for what is no share, or negative.
    """

    calls: float = 20_000
    ambiguous: float = 0.015
    acted: float = 0.30
    duplicate_cost: float = 80.0
    resolved: float = 0.85
    person_cost: float = 6.0

    def __post_init__(self) -> None:
        for name in ("ambiguous", "acted", "resolved"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name)!r}: give a share from 0 to 1")
        for name in ("calls", "duplicate_cost", "person_cost"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name}={getattr(self, name)!r}: give 0 or more")


@dataclass(frozen=True, slots=True)
class Costs:
    """In a day. unknown: intents without an answer; duplicates: what blind retries of them would add."""

    unknown: float
    duplicates: float
    without_gate: float
    for_people: float
    with_gate: float

    @property
    def saved(self) -> float:
        return self.without_gate - self.with_gate


def costs(rates: Rates) -> Costs:
    """Without the gate each call without an answer is retried; with it, each is UNKNOWN until somebody decides."""
    unknown = rates.calls * rates.ambiguous
    duplicates = unknown * rates.acted
    for_people = unknown * (1 - rates.resolved)
    return Costs(unknown, duplicates, duplicates * rates.duplicate_cost, for_people, for_people * rates.person_cost)


def told(rates: Rates) -> list[str]:
    """The figures as lines for people."""
    figures = costs(rates)

    def line(name: str, value: float, how: str) -> str:
        return f"{name:<34} {round(value, 2):>12,.10g}   {how}"

    return [
        line("calls without an answer, a day", figures.unknown, f"{rates.calls:,.10g} calls × {rates.ambiguous:.4g}"),
        line("without gate: duplicates, a day", figures.duplicates, f"× {rates.acted:.4g} had acted"),
        line("without gate: cost, a day", figures.without_gate, f"× {rates.duplicate_cost:,.10g} each"),
        line("with gate: UNKNOWN, a day", figures.unknown, "no duplicates"),
        line("with gate: decided by a person", figures.for_people, f"{rates.resolved:.4g} decided by look-ups"),
        line("with gate: cost, a day", figures.with_gate, f"× {rates.person_cost:,.10g} each"),
        line("saved, a day", figures.saved, ""),
    ]
