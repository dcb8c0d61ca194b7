"""What whoever explores asks of a provider for one request: faults it performs, and what is decided for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_once.boundaries import ASKS, BEGIN, DECLINE, FAIL, STALE


@dataclass(frozen=True, slots=True)
class Instructions:
    """For one request. asks: what the contract leaves open is asked for (`Undecided`), not settled by its first value.

    stale: answer a look-up from before the latest effect. begin: begin the work, and answer nobody. fail: fail with 500
    inside the idempotency layer. decline: refuse for a reason of the business. decided: contract parameter -> value.
    """

    asks: bool = False
    stale: bool = False
    begin: bool = False
    fail: bool = False
    decline: bool = False
    decided: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def read(text: str) -> Instructions:
        """From the header `ORDER_HEADER`: words and name=value, separated by commas. Unknown words mean nothing."""
        words = [word.strip() for word in text.split(",")]
        decided = dict(word.split("=", 1) for word in words if "=" in word)
        return Instructions(ASKS in words, STALE in words, BEGIN in words, FAIL in words, DECLINE in words, decided)


NOTHING = Instructions()


class Undecided(Exception):
    """The contract leaves open what happens: `parameter` may be any of `options`; the first is the usual one."""

    def __init__(self, parameter: str, options: tuple[str, ...]) -> None:
        super().__init__(f"{parameter} may be {', '.join(options)}")
        self.parameter = parameter
        self.options = options
