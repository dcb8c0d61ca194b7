"""The inventory check: which of a program's tools declare no level, and which bypass the gate.

Tools may be functions, or objects and dictionaries as MCP and agent frameworks have them.
`pytest --once-inventory=module:tools` fails with what is found here.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_once.reference.routing import GATED, MUST_PASS, Level, Route, Routed, declared_level, route

_FUNCTIONS = ("fn", "func", "coroutine", "function", "handler", "callback", "on_invoke_tool", "run")
"""Where tool objects keep what they call."""


class InventoryError(ValueError):
    """The tools could not be found or read; the message names the remedy."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as found. place: file:line, or where in the target it stands if it has no function."""

    name: str
    place: str
    declared: Level | None
    gated: bool
    annotations: object
    routed: Routed


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """Tools with what their own code does not say. tools: as for the function `tools`.

    levels: name of a tool → its level. gated: names of tools that pass the gate where nobody can see it. trusted:
    whether the annotations of MCP servers are believed.
    """

    tools: object
    levels: Mapping[str, Level] = field(default_factory=dict)
    gated: frozenset[str] = frozenset()
    trusted: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with a tool, and how to put it right."""

    tool: Tool
    problem: str

    def __str__(self) -> str:
        return f"{self.tool.place}: {self.tool.name}: {self.problem}"


def load(target: str, directory: str | os.PathLike[str] = ".") -> object:
    """What `module:tools` names; `directory` is searched for the module, too. Raises InventoryError."""
    module_name, colon, path = target.partition(":")
    if not colon or not module_name or not path:
        raise InventoryError(f"{target!r} names no tools; write module:tools, such as shop.agent:TOOLS")
    sys.path.insert(0, os.path.abspath(directory))
    try:
        found: object = importlib.import_module(module_name)
    except ImportError as error:
        raise InventoryError(f"{module_name} cannot be imported from {os.path.abspath(directory)}: {error}") from error
    except Exception as error:
        raise InventoryError(f"{module_name} failed while it was imported: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(os.path.abspath(directory))
    for name in path.split("."):
        if not hasattr(found, name):
            near = [each for each in dir(found) if not each.startswith("_") and _holds_tools(getattr(found, each))]
            raise InventoryError(
                f"{target!r}: {module_name} has no {name!r}" + (f"; it has {', '.join(near)}" if near else "")
            )
        found = getattr(found, name)
    return found


def _holds_tools(value: object) -> bool:
    return isinstance(value, (list, tuple, dict)) or inspect.isroutine(value)


def tools(found: object, where: str = "tools", *, trusted: bool = False) -> list[Tool]:
    """Read a tool, a list of tools, a mapping from name to tool, a Catalog, or an object that has them as `tools`.

    trusted: whether the annotations of MCP servers are believed. Raises InventoryError for what is no tool, and where
    there is none: an inventory of nothing would pass always.
    """
    catalog = found if isinstance(found, Catalog) else Catalog(tools=found, trusted=trusted)
    listed = [_tool(name, tool, place, catalog) for name, tool, place in _each(catalog.tools, where)]
    if unknown := sorted({*catalog.levels, *catalog.gated} - {tool.name for tool in listed}):
        raise InventoryError(f"{where} has no tool {', '.join(unknown)}, which its catalog names")
    if not listed:
        raise InventoryError(f"{where} holds no tools, so nothing was checked; name the list that the agent is given")
    return listed


def check(listed: list[Tool]) -> list[Finding]:
    """What is wrong, in the order of the tools."""
    return [Finding(tool, problem) for tool in listed if (problem := _problem(tool))]


def _problem(tool: Tool) -> str:
    if tool.declared is None and (tool.routed.level is None or not _known_by_trust(tool)):
        return (
            f"declares no level ({tool.routed.reason}); decorate it with @level(Level.L0) if it only reads, L1 if it "
            "overwrites, L2 if it appends, L3 if it cannot be taken back"
        )
    if tool.routed.route is Route.BLOCK:
        return f"is blocked: {tool.routed.reason}"
    if tool.routed.level in MUST_PASS and not tool.gated:
        return (
            f"is {tool.routed.level} and bypasses the gate, so a retry may act twice; decorate its function with "
            "gate.protect(...), or declare it with level(..., gated=True) if it passes the gate inside"
        )
    return ""


def _known_by_trust(tool: Tool) -> bool:
    return "trusted server" in tool.routed.reason


def _each(found: object, where: str) -> Iterator[tuple[str | None, Any, str]]:
    if isinstance(found, Mapping) and not _is_definition(found):
        for name, tool in found.items():
            yield str(name), tool, f"{where}[{name!r}]"
    elif isinstance(found, (list, tuple, set, frozenset)):
        for number, tool in enumerate(found):
            yield None, tool, f"{where}[{number}]"
    elif not callable(found) and _function(found) is None and hasattr(found, "tools"):
        inner = found.tools
        if callable(inner):
            raise InventoryError(f"{where}.tools is a function; name the list that it returns")
        yield from _each(inner, f"{where}.tools")
    else:
        yield None, found, where


def _is_definition(value: Mapping[Any, Any]) -> bool:
    return isinstance(value.get("name"), str) or isinstance(value.get("function"), Mapping)


def _tool(name: str | None, tool: Any, place: str, catalog: Catalog) -> Tool:
    function = _function(tool)
    told = _attribute(tool, "name")
    if isinstance(tool, Mapping) and isinstance(inner := tool.get("function"), Mapping):
        told = inner.get("name")
    name = name or (told if isinstance(told, str) else None) or _name(function)
    if name is None or (function is None and not isinstance(told, str)):
        raise InventoryError(
            f"{place} is a {type(tool).__name__}, which is no tool: give functions, objects with a name and a function "
            f"({', '.join(_FUNCTIONS)}), or MCP tool definitions"
        )
    annotations = _attribute(tool, "annotations")
    if inspect.isroutine(tool):
        annotations = None  # a function's attribute of that name holds its types
    declared = catalog.levels.get(name, _first_level(tool, function))
    return Tool(
        name,
        _place(function) or place,
        declared,
        name in catalog.gated or any(getattr(each, GATED, False) for each in _layers(tool, function)),
        annotations,
        route(declared, annotations, trusted=catalog.trusted),
    )


def _attribute(tool: Any, name: str) -> Any:
    return tool.get(name) if isinstance(tool, Mapping) else getattr(tool, name, None)


def _function(tool: Any) -> Any:
    """What a tool calls; None for a mere definition."""
    if inspect.isroutine(tool) or isinstance(tool, functools.partial):
        return tool
    for name in _FUNCTIONS:
        value = _attribute(tool, name)
        if callable(value) and _place(value) is not None:
            return value
    return tool if callable(tool) and not isinstance(tool, type) else None


def _name(function: Any) -> str | None:
    names = (getattr(each, "__name__", None) for each in _layers(function, None))
    return next((name for name in names if isinstance(name, str)), None)


def _layers(tool: Any, function: Any) -> Iterator[Any]:
    """A tool, its function, and what these wrap: the declaration may be at any of them."""
    seen: list[Any] = []
    waiting = [tool, function]
    while waiting:
        each = waiting.pop(0)
        if each is None or any(each is other for other in seen):
            continue
        seen.append(each)
        yield each
        waiting += [getattr(each, "__wrapped__", None), getattr(each, "__func__", None)]
        if isinstance(each, functools.partial):
            waiting.append(each.func)


def _first_level(tool: Any, function: Any) -> Level | None:
    return next((found for each in _layers(tool, function) if (found := declared_level(each)) is not None), None)


def _place(function: Any) -> str | None:
    if function is None:
        return None
    for each in reversed(list(_layers(function, None))):
        code = getattr(each, "__code__", None) or getattr(vars(type(each)).get("__call__"), "__code__", None)
        if code is not None:
            path = Path(code.co_filename)
            near = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
            return f"{near}:{code.co_firstlineno}"
    return None


def summary(listed: list[Tool], findings: list[Finding]) -> list[str]:
    """Lines for people: each finding, and a count."""
    lines = [str(finding) for finding in findings]
    wrong = len({id(finding.tool) for finding in findings})
    plural = "tool" if len(listed) == 1 else "tools"
    return [*lines, f"{len(listed)} {plural}, {f'{wrong} not' if wrong else 'all'} in order"]
