"""Tasks and what they intend to do, stored together before anything is done.

The name of an intent is made here, once. A task that is planned again, after a crash, by a retry, in other words, gets
the stored names back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pytest_once.reference.identity import Effect, EffectConflict, canonical, intent_id
from pytest_once.reference.steps import Statement, Steps


@dataclass(frozen=True, slots=True)
class Planned:
    """One step of a task, as the planner sees it."""

    step: str
    effect: Effect
    payload: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Intent:
    """A planned action as it is stored. Send `payload`, not what a later attempt believes it to be."""

    intent_id: str
    tenant: str
    task: str
    step: str
    action: str
    payload: Mapping[str, object]
    binding: str


def plan(
    tenant: str,
    task: str,
    description: str,
    steps: Sequence[Planned],
    *,
    now: float,
    new_id: Callable[[], str] | None = None,
) -> Steps[tuple[Intent, ...]]:
    """Store a task and its intents in one transaction, and return the stored intents in the order of `steps`.

    new_id: makes the names (`identity.uuid7`); without it they are tenant:task:step:action. A step that is stored
    already keeps its name and payload, and a task its description, since rewording is no new task. Later plans may add
    steps. Raises EffectConflict if a stored step's effect-bearing fields now have other values.
    """
    yield Statement(
        "INSERT INTO tasks (tenant, task, description, planned_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (tenant, task, description, now),
    )
    intents = []
    for planned in steps:
        action = planned.effect.action
        name = intent_id(tenant, task, planned.step, action)
        intents.append((yield from _store(tenant, task, planned, new_id() if new_id else name, now)))
    return tuple(intents)


def _store(tenant: str, task: str, planned: Planned, name: str, now: float) -> Steps[Intent]:
    effect = planned.effect
    binding = effect.binding(planned.payload)
    yield Statement(
        "INSERT INTO intents (intent_id, tenant, task, step, action, payload, binding, planned_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (tenant, task, step, action) DO NOTHING",
        (name, tenant, task, planned.step, effect.action, canonical(planned.payload), binding, now),
    )
    ((stored_id, text, stored_binding),) = yield Statement(
        "SELECT intent_id, payload, binding FROM intents WHERE tenant = ? AND task = ? AND step = ? AND action = ?",
        (tenant, task, planned.step, effect.action),
    )
    payload = json.loads(text)
    if stored_binding != binding:
        changed = ", ".join(effect.changed(payload, planned.payload)) or "the declaration of its fields"
        raise EffectConflict(
            f"{stored_id} was planned with another effect: {changed} differs. Resume the stored intent,"
            " or plan a new step if another action is meant"
        )
    return Intent(str(stored_id), tenant, task, planned.step, effect.action, payload, binding)
