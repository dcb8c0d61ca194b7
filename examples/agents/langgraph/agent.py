"""A refund agent as a LangGraph graph: a scripted model, a ToolNode, a checkpoint after every step."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import RetryPolicy

from examples.agents.refunds import Refund

TASK: MessagesState = {"messages": [HumanMessage("Refund order_123.", id="task")]}
# One worker: LangGraph hands what it stores to a pool of threads, which may store it in either order.
THREAD: RunnableConfig = {"configurable": {"thread_id": "order_123"}, "max_concurrency": 1}


def resume(checkpoints: Path, tool: Refund) -> None:
    """Begin the task, or go on from its last checkpoint; for a finished one that does nothing."""
    with _graph(checkpoints, tool) as graph:
        begun = graph.get_state(THREAD).created_at is not None
        graph.invoke(None if begun else TASK, THREAD, durability="sync")


def resume_by_next(checkpoints: Path, tool: Refund) -> None:
    """As one reads the documentation: `next` names the nodes to run, so none means finished."""
    with _graph(checkpoints, tool) as graph:
        state = graph.get_state(THREAD)
        if state.next or not state.values:
            graph.invoke(None if state.next else TASK, THREAD, durability="sync")


@contextmanager
def _graph(checkpoints: Path, tool: Refund) -> Iterator[Any]:
    builder = StateGraph(MessagesState)
    builder.add_node("model", _model)
    tools = ToolNode([tool], handle_tool_errors=False, wrap_tool_call=_named)
    builder.add_node("tools", tools, retry_policy=RetryPolicy(max_attempts=2, jitter=False))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", _after_model)
    builder.add_edge("tools", "model")
    with closing(sqlite3.connect(checkpoints, check_same_thread=False)) as connection:
        yield builder.compile(checkpointer=SqliteSaver(connection))


def _model(state: MessagesState) -> dict[str, list[AIMessage]]:
    """What a model would say, as a function of the conversation."""
    if isinstance(state["messages"][-1], ToolMessage):
        return {"messages": [AIMessage("Refunded.", id="answer")]}
    call = {"name": "refund", "args": {"order": "order_123", "amount": 500}, "id": "call_1"}
    return {"messages": [AIMessage("", id="plan", tool_calls=[call])]}


def _after_model(state: MessagesState) -> str:
    last = state["messages"][-1]
    return "tools" if isinstance(last, AIMessage) and last.tool_calls else END


def _named(request: ToolCallRequest, execute: Callable[[ToolCallRequest], Any]) -> Any:
    """Without a name of its own, an answer is given one while another thread stores it: before or after."""
    answer = execute(request)
    answer.id = f"answer to {request.tool_call['id']}"
    return answer
