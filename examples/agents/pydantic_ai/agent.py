"""A refund agent on Pydantic AI: a scripted model that asks for the refund, and again if it is told to retry."""

from __future__ import annotations

from collections.abc import Callable

import httpx
from pydantic_ai import (
    Agent,
    ModelMessage,
    ModelResponse,
    ModelRetry,
    RunContext,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

Act = Callable[[str, int, str], str]
"""A refund tool that is told the id of the call, too."""


def work(act: Act) -> str:
    """Carry out the task; what the model says in the end."""
    agent = Agent(FunctionModel(_model), retries=2)

    @agent.tool
    def refund(context: RunContext[object], order: str, amount: int) -> str:
        """Refund an order. amount: in cents."""
        try:
            return act(order, amount, context.tool_call_id or "")
        except httpx.TransportError as error:
            # What the documentation advises for a failure that may pass.
            raise ModelRetry("the payment provider did not answer, try again") from error

    return agent.run_sync("Refund order_123.").output


def _model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """What a model would say, as a function of the conversation; each of its calls has an id of its own."""
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart) and last.outcome != "retried":
        return ModelResponse([TextPart("Refunded.")])
    number = 1 + sum(isinstance(message, ModelResponse) for message in messages)
    call = ToolCallPart("refund", {"order": "order_123", "amount": 500}, tool_call_id=f"call_{number}")
    return ModelResponse([call])
