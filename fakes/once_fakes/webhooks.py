"""A provider tells its client what became of its effects: at least once, in any order, perhaps before the response.

In which order events come, whether an acknowledgement is lost, and whether an event comes before the response to the
call that caused it, is for whoever explores to choose. An event that nobody has acknowledged waits.
"""

from __future__ import annotations

import collections
import json
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any

from once_fakes.contract import Contract
from once_fakes.dialect import dialect_of
from once_fakes.settling import settle_due
from pytest_once.boundaries import announce
from pytest_once.ledger import Ledger
from pytest_once.ledger.within import acknowledge_event, effect_by_arrival, now_within, waiting_events

_ACKNOWLEDGED, _LOST = "acknowledged", "the acknowledgement is lost"
_LATER = "no event comes yet"


@dataclass(frozen=True, slots=True)
class Event:
    """A webhook as it is delivered.

    id: the same whenever this event is delivered. kind: "receipt.done". body: as it is sent, `id` in it. headers: names
    in small; with a signature by `once_fakes.signing.WEBHOOK_SECRET` that is of the time of this delivery.
    """

    id: str
    kind: str
    body: bytes
    headers: dict[str, str]

    def json(self) -> Any:
        """The body as a JSON value."""
        return json.loads(self.body)


Handle = Callable[[Event], int | None]
"""Takes an event. None or an HTTP status below 300 acknowledges it; another status, or an exception, does not."""
HandleAsync = Callable[[Event], Awaitable[int | None]]


class Webhooks:
    """The webhooks of one provider, in one process. handle: who takes an event that comes before a response."""

    def __init__(self, ledger: Ledger, provider: str, contract: Contract, tell_time: Callable[[], None]) -> None:
        self.handle: Handle | None = None
        self._ledger = ledger
        self._provider = provider
        self._contract = contract
        self._tell_time = tell_time
        self._heard: set[int] = set()

    def deliver(self, handle: Handle) -> tuple[Event, ...]:
        """Deliver what waits. Returns what still waits then, because it was not acknowledged."""
        deliveries = self._deliveries()
        number = next(deliveries, None)
        while number is not None:
            try:
                number = deliveries.send(self._taken(handle, number))
            except StopIteration:
                break
        return self._waiting()

    async def deliver_async(self, handle: HandleAsync) -> tuple[Event, ...]:
        """The same for a handler that is to be awaited."""
        deliveries = self._deliveries()
        number = next(deliveries, None)
        while number is not None:
            try:
                number = deliveries.send(await self._taken_async(handle, number))
            except StopIteration:
                break
        return self._waiting()

    def before_response(self, arrival: int | None) -> None:
        """The response to an arrival is on its way: what the arrival has caused may be told before it."""
        if self.handle is None or arrival is None:
            return
        with self._ledger.transaction() as connection:
            effect = effect_by_arrival(connection, arrival)
        if effect is None:
            return
        if effect.state == "pending":
            # So that whoever explores may let the work end here.
            announce("webhook", f"{self._provider} before its response", provider=self._provider)
        numbers = [number for number, of in self._rows() if of == effect.id]
        if not numbers:
            return
        options = (_LATER, *map(self._described, numbers))
        chosen = announce("webhook", f"{self._provider} tells before its response", options=options).option
        if chosen:
            number = numbers[chosen - 1]
            self._answered(number, self._taken(self.handle, number))

    # -- one delivery after the other ----------------------------------------------------------------

    def _deliveries(self) -> Generator[int, bool, None]:
        """Yields the event to deliver next, by its id in the ledger, and is sent whether it was taken."""
        delivered: collections.Counter[int] = collections.Counter()
        while True:
            self._settle()
            numbers = [number for number, _ in self._rows() if delivered[number] < 2]
            if not numbers:
                return
            # First those that have not been delivered yet.
            numbers.sort(key=lambda number: (delivered[number], number))
            options = tuple(map(self._described, numbers))
            chosen = announce("webhook", f"{self._provider} tells", provider=self._provider, options=options).option
            number = numbers[chosen]
            delivered[number] += 1
            self._answered(number, (yield number))

    def _answered(self, number: int, taken: bool) -> None:
        """The handler is done with an event: the provider hears so, or not."""
        if not taken:
            return
        # An acknowledgement is lost once in a life, or there would be no end of it.
        options = (_ACKNOWLEDGED,) if number in self._heard else (_ACKNOWLEDGED, _LOST)
        self._heard.add(number)
        target = f"{self._provider} hears of {self._name(number)}"
        if announce("webhook", target, provider=self._provider, options=options).option == 0:
            with self._ledger.transaction() as connection:
                acknowledge_event(connection, number)

    def _taken(self, handle: Handle, number: int) -> bool:
        try:
            return _acknowledges(handle(self._event(number)))
        except Exception as error:
            return self._refused(error)

    async def _taken_async(self, handle: HandleAsync, number: int) -> bool:
        try:
            return _acknowledges(await handle(self._event(number)))
        except Exception as error:
            return self._refused(error)

    def _refused(self, error: Exception) -> bool:
        """A server answers 500 and writes down why; a handler that cannot be used at all is the test's error."""
        if isinstance(error, UnusableAnswer):
            raise error
        print(f"{self._provider}: the handler of webhooks raised, so the event waits:", file=sys.stderr)
        traceback.print_exception(error)
        return False

    # -- events --------------------------------------------------------------------------------------

    def _settle(self) -> None:
        self._tell_time()
        if self._contract.keeps_time:
            with self._ledger.transaction() as connection:
                settle_due(connection, self._provider, self._contract, now_within(connection))

    def _rows(self) -> list[tuple[int, int]]:
        with self._ledger.transaction() as connection:
            return waiting_events(connection, self._provider)

    def _waiting(self) -> tuple[Event, ...]:
        return tuple(self._event(number) for number, _ in self._rows())

    def _name(self, number: int) -> str:
        earlier = [event for event in self._ledger.events() if event.provider == self._provider and event.id <= number]
        return f"evt_{self._provider}_{len(earlier)}"

    def _described(self, number: int) -> str:
        kind = next(event.kind for event in self._ledger.events() if event.id == number)
        return f"{self._name(number)} {kind}"

    def _event(self, number: int) -> Event:
        told = next(event for event in self._ledger.events() if event.id == number)
        dialect, name = dialect_of(self._contract), self._name(number)
        kind, content = dialect.encode({**json.loads(told.body), "id": name})
        headers = dialect.event_headers(self._contract, name, int(time.time()), content)
        return Event(name, told.kind, content, {"content-type": kind, **headers})


class UnusableAnswer(TypeError):
    """A handler answered with something that is no status; the message says what is."""


def _acknowledges(answer: object) -> bool:
    if answer is not None and type(answer) is not int:
        raise UnusableAnswer(
            f"a handler of webhooks returns None or an HTTP status such as 200, not {answer!r}: give the status"
        )
    return answer is None or answer < 300
