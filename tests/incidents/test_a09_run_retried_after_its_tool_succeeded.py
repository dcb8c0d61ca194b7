"""A09: the tool has returned, the next model call fails, and the retry loop around the whole run calls the tool again.

No crash, and nothing unknown. Report: agno-agi/agno#10366.
"""

from __future__ import annotations

from collections.abc import Callable

from pytest_once import Once, Verdict, explore
from tests.incidents.models import asks_once, cell, convicted, escalated

RETRIES = 3
PROMPTS = ("what now?", "the tool has answered")


def run(tool: Callable[[], object], model: Callable[[str], object]) -> None:
    model("what now?")
    tool()
    model("the tool has answered")


def retried_as_a_whole(tool: Callable[[], object], model: Callable[[str], object]) -> None:
    for attempt in range(1, RETRIES + 1):
        try:
            run(tool, model)
            return
        except Exception:
            if attempt == RETRIES:
                raise


def retried_call_by_call(tool: Callable[[], object], model: Callable[[str], object]) -> None:
    def patient(prompt: str) -> object:
        try:
            return model(prompt)
        except ConnectionRefusedError:
            return model(prompt)

    run(tool, patient)


def agent(once: Once, how: Callable[[Callable[[], object], Callable[[str], object]], None]) -> None:
    def answer(prompt: str) -> str:
        return "answer"

    models = {prompt: once.tool(answer, name=prompt, counted=False) for prompt in PROMPTS}
    mail = once.provider("mail")
    asks_once(once, lambda: how(lambda: mail.call("send", {"mail": "mail_1"}), lambda prompt: models[prompt](prompt)))


def test_the_tool_runs_once_for_each_retry_of_the_run() -> None:
    report = explore(
        lambda once: agent(once, retried_as_a_whole), faults=("refused",), keys=["mail_1"], blocked=("unknown",)
    )
    violation = convicted(report, Verdict.DUPLICATE, expected=1, actual=2, key="mail_1")
    assert violation.schedule.crashes == 0
    assert cell(report, "refused", PROMPTS[0]) == "once"
    assert cell(report, "refused", PROMPTS[1]) == "2x"


def test_a_retry_of_the_failed_call_alone() -> None:
    report = explore(
        lambda once: agent(once, retried_call_by_call), faults=("refused",), keys=["mail_1"], blocked=("unknown",)
    )
    escalated(report)
    assert cell(report, "refused", PROMPTS[1]) == "once"
