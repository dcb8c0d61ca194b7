"""How much is undecided, for how long, and who decides it: numbers, and the text format that Prometheus reads."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_once.reference.steps import Statement, Steps

BUCKETS_S = (60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
"""Upper bounds of the histogram of times to resolve, in seconds."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """unknown: intents nobody can decide yet, ended leases included. oldest_s: age of the oldest of them.

    resolved: decided attempts that had been UNKNOWN, by what decided them ("look-up", "person", "late answer", or
    "answer", that of a resend). mean_s: mean time to resolve. within: how many took no longer than each of BUCKETS_S.
    waiting_for_person, contradictions: open questions. person_share: those which needed a person, of all that were
    decided or wait for a person; None while there are none.
    """

    unknown: int
    oldest_s: float
    in_flight: int
    resolved: dict[str, int]
    resolution_sum_s: float
    within: tuple[int, ...]
    waiting_for_person: int
    contradictions: int

    @property
    def resolutions(self) -> int:
        return sum(self.resolved.values())

    @property
    def mean_s(self) -> float | None:
        return self.resolution_sum_s / self.resolutions if self.resolutions else None

    @property
    def person_share(self) -> float | None:
        needed = self.resolved.get("person", 0) + self.waiting_for_person
        total = self.resolutions + self.waiting_for_person
        return needed / total if total else None


def measure(now: float, since: float = 0.0) -> Steps[Metrics]:
    """The numbers as of `now`. since: count only what was resolved from then on. Reads what is or was undecided."""
    flying = yield Statement("SELECT COUNT(*) FROM gate_intents WHERE state = 'IN_FLIGHT' AND lease_until > ?", (now,))
    ended = yield Statement(
        "SELECT COUNT(*), MIN(lease_until) FROM gate_intents WHERE state = 'IN_FLIGHT' AND lease_until <= ?", (now,)
    )
    unknown = yield Statement("SELECT COUNT(*), MIN(unknown_since) FROM gate_intents WHERE state = 'UNKNOWN'")
    decided = yield Statement(
        "SELECT resolved_by, COUNT(*), SUM(resolved_at - unknown_at) FROM gate_attempts "
        "WHERE resolved_at IS NOT NULL AND resolved_at >= ? GROUP BY resolved_by ORDER BY resolved_by",
        (since,),
    )
    sums = ", ".join("SUM(CASE WHEN resolved_at - unknown_at <= ? THEN 1 ELSE 0 END)" for _ in BUCKETS_S)
    within = yield Statement(
        f"SELECT {sums} FROM gate_attempts WHERE resolved_at IS NOT NULL AND resolved_at >= ?", (*BUCKETS_S, since)
    )
    waiting = yield Statement("SELECT COUNT(*), SUM(contradiction) FROM gate_questions WHERE decided_at IS NULL")
    oldest = min((instant for _, instant in (*ended, *unknown) if instant is not None), default=now)
    open_, wrong = (int(number or 0) for number in waiting[0])
    return Metrics(
        unknown=int(ended[0][0]) + int(unknown[0][0]),
        oldest_s=max(0.0, now - oldest),
        in_flight=int(flying[0][0]),
        resolved={str(by): int(count) for by, count, _ in decided},
        resolution_sum_s=sum(float(total) for _, _, total in decided),
        within=tuple(int(count or 0) for count in within[0]),
        waiting_for_person=open_ - wrong,
        contradictions=wrong,
    )


def prometheus(metrics: Metrics) -> str:
    """The text exposition format (version 0.0.4)."""
    lines: list[str] = []

    def add(name: str, kind: str, help_: str, samples: list[tuple[str, float]]) -> None:
        lines.extend((f"# HELP {name} {help_}", f"# TYPE {name} {kind}"))
        lines.extend(f"{name}{labels} {value:.15g}" for labels, value in samples)

    add(
        "once_gate_unknown",
        "gauge",
        "Intents of which nobody knows whether they had their effect.",
        [("", metrics.unknown)],
    )
    add("once_gate_unknown_oldest_seconds", "gauge", "Age of the oldest of them.", [("", metrics.oldest_s)])
    add("once_gate_in_flight", "gauge", "Intents that are being executed.", [("", metrics.in_flight)])
    add(
        "once_gate_resolved_total",
        "counter",
        "Attempts that were unknown and were decided, by what decided.",
        [(f'{{by="{by}"}}', count) for by, count in metrics.resolved.items()],
    )
    add(
        "once_gate_resolution_seconds",
        "histogram",
        "Time from unknown to decided.",
        [],
    )
    bounds = [*zip((f"{bound:g}" for bound in BUCKETS_S), metrics.within, strict=True), ("+Inf", metrics.resolutions)]
    lines += [f'once_gate_resolution_seconds_bucket{{le="{bound}"}} {count}' for bound, count in bounds]
    lines.append(f"once_gate_resolution_seconds_sum {metrics.resolution_sum_s:.15g}")
    lines.append(f"once_gate_resolution_seconds_count {metrics.resolutions}")
    waiting = [("", float(metrics.waiting_for_person))]
    add("once_gate_person_waiting", "gauge", "Questions that wait for a person.", waiting)
    add("once_gate_contradictions", "gauge", "Late answers that deny what was decided.", [("", metrics.contradictions)])
    share = metrics.person_share
    if share is not None:
        add("once_gate_person_share_ratio", "gauge", "Share of the undecided that needed a person.", [("", share)])
    return "\n".join(lines) + "\n"
