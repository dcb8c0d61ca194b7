"""The inventory: tools of every shape, what is wrong with them, and pytest's option."""

from __future__ import annotations

import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_once.reference.databases import SQLite
from pytest_once.reference.gate import Gate
from pytest_once.reference.inventory import Catalog, InventoryError, check, load, tools
from pytest_once.reference.routing import Level, declare, level
from tests.plugin.conftest import Lab


def undeclared(order: str) -> None: ...


@level(Level.L0)
def reads(order: str) -> None: ...


@level(Level.L1)
def overwrites(order: str) -> None: ...


@level(Level.L2)
def bypasses(order: str) -> None: ...


@level(Level.L3, gated=True)
def gated_inside(order: str) -> None: ...


@pytest.fixture
def protected(tmp_path: Path) -> Any:
    return Gate(SQLite(tmp_path / "gate.db")).protect(intent="order", level=Level.L3)(undeclared)


def problems(found: object, *, trusted: bool = False) -> dict[str, str]:
    """Name of each tool that is not in order → what is wrong."""
    return {finding.tool.name: finding.problem for finding in check(tools(found, trusted=trusted))}


def test_undeclared_and_bypassing_tools_are_found(protected: Any) -> None:
    """S4.9: L2 and L3 must pass the gate, and every tool has to say what it is."""
    found = problems([undeclared, reads, overwrites, bypasses, gated_inside])
    assert set(found) == {"undeclared", "bypasses"}
    assert "declares no level" in found["undeclared"] and "@level(Level.L0)" in found["undeclared"]
    assert "is L2 and bypasses the gate" in found["bypasses"]
    assert problems([protected, reads]) == {}


def test_a_finding_names_file_and_line() -> None:
    """S4.9: CI's list must lead to the code."""
    (finding,) = check(tools([undeclared]))
    path, line = str(finding).split(": ")[0].rsplit(":", 1)
    assert Path(path).name == "test_inventory.py"
    assert Path(__file__).read_text().splitlines()[int(line) - 1].startswith("def undeclared")


@pytest.mark.parametrize(
    "shape",
    [
        lambda tool: [tool],
        lambda tool: (tool,),
        lambda tool: {"undeclared": tool},
        lambda tool: tool,
        lambda tool: SimpleNamespace(tools=[tool]),
        lambda tool: [SimpleNamespace(name="undeclared", fn=tool, annotations=None)],
        lambda tool: [SimpleNamespace(name="undeclared", func=None, coroutine=tool)],
        lambda tool: [{"name": "undeclared", "handler": tool}],
        lambda tool: [functools.partial(tool, order="o")],
    ],
)
def test_tools_come_in_many_shapes(shape: Any, protected: Any) -> None:
    """S4.9: functions, lists, mappings, and the objects of agent frameworks; wrong ones found, right ones passed."""
    found = tools(shape(undeclared))
    assert len(found) == 1 and "test_inventory.py:" in found[0].place
    assert len(check(found)) == 1
    assert check(tools(shape(protected))) == []


def test_definitions_without_a_function_are_judged_by_their_annotations() -> None:
    """S4.9: an MCP client sees the tools of others as definitions only."""
    defined = [
        {"name": "search", "inputSchema": {}, "annotations": {"readOnlyHint": True}},
        SimpleNamespace(name="send", annotations=SimpleNamespace(readOnlyHint=False, destructiveHint=True)),
        {"type": "function", "function": {"name": "plain"}},
    ]
    untrusted = problems(defined)
    assert set(untrusted) == {"search", "send", "plain"}
    assert "nobody trusts them" in untrusted["search"]
    trusted = problems(defined, trusted=True)
    assert set(trusted) == {"send", "plain"} and "bypasses the gate" in trusted["send"]
    assert tools(defined)[2].place == "tools[2]"


def test_a_level_can_be_declared_for_somebody_elses_tool() -> None:
    """S4.9: as a mapping in one's own code."""
    send = declare(SimpleNamespace(name="send", annotations={"readOnlyHint": False}), Level.L0)
    assert "one is wrong" in problems([send])["send"]
    definitions = [{"name": "send"}, {"name": "find", "annotations": {"readOnlyHint": True}}]
    with pytest.raises(TypeError, match="a dict takes no attributes"):
        declare(definitions[0], Level.L3)
    levels = {"send": Level.L3, "find": Level.L0}
    assert set(problems(Catalog(tools=definitions, levels=levels))) == {"send"}
    assert problems(Catalog(tools=definitions, levels=levels, gated=frozenset({"send"}))) == {}
    with pytest.raises(InventoryError, match="has no tool sendd, which its catalog names"):
        tools(Catalog(tools=definitions, levels={"sendd": Level.L3}))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([], "holds no tools, so nothing was checked"),
        ({}, "holds no tools"),
        ([3], "is a int, which is no tool"),
        (SimpleNamespace(tools=lambda: []), "name the list that it returns"),
        ("text", "is a str, which is no tool"),
    ],
)
def test_what_is_no_tool_is_told(found: object, said: str) -> None:
    """An inventory that passes because it found nothing is a lie."""
    with pytest.raises(InventoryError, match=said):
        tools(found)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("json", "write module:tools"),
        ("nowhere_at_all:x", "cannot be imported from"),
        ("shop_tools:TOOL", "has no 'TOOL'; it has TOOLS"),
        ("broken_tools:x", "failed while it was imported: ZeroDivisionError"),
    ],
)
def test_a_wrong_target_is_told_with_its_remedy(tmp_path: Path, target: str, said: str) -> None:
    """S4.9: a slip of the pen in CI's command."""
    (tmp_path / "shop_tools.py").write_text("TOOLS = []\n")
    (tmp_path / "broken_tools.py").write_text("1 / 0\n")
    with pytest.raises(InventoryError, match=said):
        load(target, tmp_path)


SHOP = """
from pytest_once.reference.routing import Level, level

@level(Level.L0)
def search(text): ...

def send(to): ...

@level(Level.L3)
def pay(amount): ...

TOOLS = [search, send, pay]
RIGHT = [search]
"""


@pytest.fixture
def shop(pytester: pytest.Pytester, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    lab = Lab(pytester, tmp_path_factory.getbasetemp() / "bytecode")
    lab.ini()
    lab.write(SHOP, "shop")
    lab.write("def test_it(): pass")
    return lab


def test_the_option_fails_the_session_with_the_list(shop: Lab) -> None:
    """S4.9: exit code as of failed tests, although every test passed; file and line of each tool."""
    result = shop.run("--once-inventory=shop:TOOLS")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "*= once-inventory =*",
            "shop.py:6: send: declares no level *",
            "shop.py:8: pay: is L3 and bypasses*",
            "3 tools, 2 not in order",
        ]
    )


def test_tools_in_order_let_the_tests_decide(shop: Lab) -> None:
    """S4.9: also where there are no tests, since the inventory was the question."""
    result = shop.run("--once-inventory=shop:RIGHT")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["1 tool, all in order"])
    assert shop.run("--once-inventory=shop:RIGHT", "-k", "nothing").ret == pytest.ExitCode.OK
    assert shop.run("--once-inventory=shop:TOOLS", "-k", "nothing").ret == pytest.ExitCode.TESTS_FAILED


def test_a_failed_test_stays_failed(shop: Lab) -> None:
    """The inventory adds to what the tests say."""
    shop.write("def test_it(): assert False")
    assert shop.run("--once-inventory=shop:RIGHT").ret == pytest.ExitCode.TESTS_FAILED


def test_the_ini_key_stands_in_for_the_option(shop: Lab) -> None:
    """A project that always checks says so once."""
    shop.ini("once_inventory = shop:TOOLS")
    assert shop.run().ret == pytest.ExitCode.TESTS_FAILED
    assert shop.run("--once-inventory=shop:RIGHT").ret == pytest.ExitCode.OK


def test_a_target_that_cannot_be_read_is_a_usage_error(shop: Lab) -> None:
    """It must not look like tests that failed, or passed."""
    result = shop.run("--once-inventory=shop:NOTHING")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --once-inventory=shop:NOTHING: *shop has no 'NOTHING'; it has *"])


@pytest.mark.slow
def test_workers_of_xdist_do_not_check_again(shop: Lab) -> None:
    """Once for a session, in the controller."""
    done = shop.run_apart("--once-inventory=shop:TOOLS", "-n1")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert done.stdout.count("2 not in order") == 1
