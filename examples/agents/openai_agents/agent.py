"""A refund agent on the OpenAI Agents SDK: a scripted model that calls the tool again when it is told of an error."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from agents import (
    Agent,
    Model,
    ModelResponse,
    RunConfig,
    RunContextWrapper,
    Runner,
    Usage,
    default_tool_error_function,
    function_tool,
)
from agents.items import TResponseStreamEvent
from agents.tool_context import ToolContext
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from examples.agents.refunds import Unconfirmed

Act = Callable[[str, int, str], str]
"""A refund tool that is told the id of the call, too."""


def work(act: Act) -> str:
    """Carry out the task; what the model says in the end. Raises Unconfirmed."""

    @function_tool(failure_error_function=_told)
    def refund(context: ToolContext[Any], order: str, amount: int) -> str:
        """Refund an order. amount: in cents."""
        return act(order, amount, context.tool_call_id)

    agent = Agent(name="shop", model=_Scripted(), tools=[refund])
    settings = RunConfig(tracing_disabled=True)  # else it reports to the vendor
    return str(asyncio.run(Runner.run(agent, "Refund order_123.", run_config=settings)).final_output)


def _told(context: RunContextWrapper[Any], error: Exception) -> str:
    """As the SDK does by itself: an error is a text for the model. That nothing is known is none of its business."""
    if isinstance(error, Unconfirmed):
        raise error
    return default_tool_error_function(context, error)


class _Scripted(Model):
    """What a model would say, as a function of the conversation; each of its calls has an id of its own."""

    async def get_response(self, system_instructions: str | None, input: Any, *_: Any, **__: Any) -> ModelResponse:
        items = [] if isinstance(input, str) else [dict(item) for item in input]
        answers = [str(item["output"]) for item in items if item.get("type") == "function_call_output"]
        if answers and "Please try again" not in answers[-1]:
            return _says("Refunded.")
        arguments = json.dumps({"order": "order_123", "amount": 500})
        number = len(answers) + 1
        call = ResponseFunctionToolCall(
            type="function_call", name="refund", arguments=arguments, call_id=f"call_{number}"
        )
        return ModelResponse([call], Usage(), None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[TResponseStreamEvent]:
        raise NotImplementedError("this agent does not stream")


def _says(text: str) -> ModelResponse:
    content = ResponseOutputText(type="output_text", text=text, annotations=[])
    said = ResponseOutputMessage(id="answer", type="message", role="assistant", status="completed", content=[content])
    return ModelResponse([said], Usage(), None)
