"""The direction of imports, read from the source: whatever runs late or seldom is checked as well."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "pytest_once"
FAKES = ROOT / "fakes" / "once_fakes"

ADAPTERS = {
    "pytest": {"pytest_once.debugging", "pytest_once.plugin", "pytest_once.session"},
    "_pytest": set[str](),
    "pluggy": {"pytest_once.hookspecs"},
    "h11": {"pytest_once.boundaries.program"},
    "jinja2": {"pytest_once.reporting.html"},
    "httpx": {"pytest_once.boundaries.httpx", "once_fakes.provider"},
    "aiosmtpd": {"once_fakes.mail_serving"},
    "aiohttp": {"pytest_once.boundaries.aiohttp"},
    "respx": {"once_fakes.provider"},
    "aiosqlite": {"pytest_once.boundaries.sqlite", "pytest_once.reference.databases"},
    "asyncpg": {"pytest_once.boundaries.asyncpg"},
    "psycopg": {
        "pytest_once.boundaries.psycopg",
        "pytest_once.stores.postgresql",
        "pytest_once.stores.schemas",
        "pytest_once.reference.databases",
        "pytest_once.reference.steps",
    },
    "redis": {"pytest_once.boundaries.redis", "pytest_once.stores.redis"},
    "time_machine": {"pytest_once.clock", "pytest_once.seams"},
    "trio": {"pytest_once.clock", "pytest_once.seams", "pytest_once.boundaries.http"},
    "rich": {"pytest_once.reporting.terminal", "once_fakes.showing"},
    "hypothesis": {"pytest_once.given", "pytest_once.strategies", "pytest_once.state_machine"},
    "trustme": {"once_fakes.certificates"},
    "uvicorn": {"once_fakes.entrance"},
}
"""Third-party library -> the modules that adapt it. A library that is not here is used by nobody."""

NOTHING_ELSE = {"hypothesis": ADAPTERS["hypothesis"]}
"""Library -> modules that nobody imports but for it: they need not import it late."""

USES_FAKES = {"pytest_once.once", "pytest_once.premises", "pytest_once.evidence", "pytest_once.selfcheck"}


@dataclass(frozen=True)
class Import:
    """One imported module. lazy: inside a function; typing: only for a type checker."""

    importer: str
    imported: str
    line: int
    lazy: bool
    typing: bool

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported}"


def name_of(path: Path) -> str:
    root = ROOT if PACKAGE in path.parents else FAKES.parent
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> Iterator[Import]:
    importer = name_of(path)

    def walk(node: ast.AST, lazy: bool, typing: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(importer, alias.name, child.lineno, lazy, typing)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{importer}:{child.lineno} imports relatively"
                for alias in child.names:
                    module = f"{child.module}.{alias.name}"
                    yield Import(
                        importer, module if module in MODULES else str(child.module), child.lineno, lazy, typing
                    )
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                for part in child.body:
                    yield from walk(ast.Module([part], []), lazy, True)
            else:
                function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                yield from walk(child, lazy or function, typing)

    yield from walk(ast.parse(path.read_text(encoding="utf-8")), False, False)


SOURCES = sorted([*PACKAGE.rglob("*.py"), *FAKES.rglob("*.py")])
MODULES = {name_of(path) for path in SOURCES}
IMPORTS = [found for path in SOURCES for found in imports_of(path)]


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def listed(offenders: list[Import]) -> str:
    return "\n".join(map(str, offenders))


def test_the_source_was_found_and_read() -> None:
    """A check of nothing passes always."""
    assert "pytest_once.plugin" in MODULES
    assert "once_fakes.server" in MODULES
    assert any(found.lazy for found in IMPORTS)
    assert any(found.typing for found in IMPORTS)


def test_nobody_imports_the_plugin() -> None:
    """It is pytest's side only; the engine works without pytest."""
    assert not (wrong := [found for found in IMPORTS if within(found.imported, "pytest_once.plugin")]), listed(wrong)


def test_only_front_ends_import_reporting() -> None:
    """Listeners listen: nothing in the engine may depend on how something is told."""
    front_ends = {"pytest_once.plugin", "pytest_once.session", "pytest_once.state_machine"}
    wrong = [
        found
        for found in IMPORTS
        if within(found.imported, "pytest_once.reporting")
        and found.importer not in front_ends
        and not within(found.importer, "pytest_once.reporting")
    ]
    assert not wrong, listed(wrong)


def test_reporting_reaches_for_data_only() -> None:
    """A report is data; what renders it may not drive the engine."""
    data = {"report", "checks", "faults", "site", "events", "boundaries"}
    wrong = [
        found
        for found in IMPORTS
        if within(found.importer, "pytest_once.reporting")
        and within(found.imported, "pytest_once")
        and not within(found.imported, "pytest_once.reporting")
        and found.imported.split(".")[1] not in data
    ]
    assert not wrong, listed(wrong)


def test_the_engine_imports_the_fakes_late_and_in_few_places() -> None:
    """The fakes stand on the engine; only what builds or reads a provider reaches back, when it does so."""
    wrong = [
        found
        for found in IMPORTS
        if within(found.importer, "pytest_once")
        and within(found.imported, "once_fakes")
        and not (found.importer in USES_FAKES and (found.lazy or found.typing))
    ]
    assert not wrong, listed(wrong)


def test_the_reference_stands_alone() -> None:
    """It is to be copied into production, where there is no engine."""
    wrong = [
        found
        for found in IMPORTS
        if within(found.importer, "pytest_once.reference")
        and (within(found.imported, "pytest_once") or within(found.imported, "once_fakes"))
        and not within(found.imported, "pytest_once.reference")
    ]
    assert not wrong, listed(wrong)


def test_the_fakes_know_a_few_modules_of_the_engine_only() -> None:
    """Ledger, faults, announcements: what DESIGN names. A fake must not know who explores it."""
    known = {"boundaries", "calls", "faults", "ledger"}
    wrong = [
        found
        for found in IMPORTS
        if within(found.importer, "once_fakes")
        and within(found.imported, "pytest_once")
        and found.imported.split(".")[1:2] not in [[name] for name in known]
        # The conformance suite crashes fakes by exploring them, as a user of the package would.
        and (found.importer, found.imported) != ("once_fakes.conformance", "pytest_once")
    ]
    assert not wrong, listed(wrong)


@pytest.mark.parametrize("library", sorted(ADAPTERS))
def test_a_library_is_imported_only_by_what_adapts_it(library: str) -> None:
    """One module knows a library; replacing the library touches that module."""
    wrong = [found for found in IMPORTS if within(found.imported, library) and found.importer not in ADAPTERS[library]]
    assert not wrong, listed(wrong)


def test_no_other_library_is_imported() -> None:
    """A new dependency is a decision, to be written down in the table above."""
    known = {"pytest_once", "once_fakes", *ADAPTERS, *sys.stdlib_module_names}
    assert not (wrong := [found for found in IMPORTS if found.imported.split(".")[0] not in known]), listed(wrong)


def test_third_party_libraries_are_imported_late() -> None:
    """Every pytest run loads the plugin; only a test that needs a library pays for it."""
    wrong = [
        found
        for found in IMPORTS
        if found.imported.split(".")[0] in ADAPTERS
        and found.imported.split(".")[0] not in ("pytest", "pluggy")  # they are there anyway
        and not found.lazy
        and not found.typing
        and found.importer not in NOTHING_ELSE.get(found.imported.split(".")[0], ())
    ]
    assert not wrong, listed(wrong)


def test_what_is_there_for_one_library_is_imported_late() -> None:
    """Or the library would be imported early after all."""
    modules = {module for only in NOTHING_ELSE.values() for module in only}
    wrong = [
        found
        for found in IMPORTS
        if found.imported in modules and found.importer not in modules and not found.lazy and not found.typing
    ]
    assert not wrong, listed(wrong)


def test_the_plugin_imports_the_engine_late() -> None:
    """A run without marked tests needs none of it."""
    wrong = [
        found
        for found in IMPORTS
        if found.importer == "pytest_once.plugin"
        and within(found.imported, "pytest_once")
        and not found.lazy
        and not found.typing
    ]
    assert not wrong, listed(wrong)
