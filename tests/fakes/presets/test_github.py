"""GitHub issues: no key, a list in pages, a search, and error documents as GitHub words them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing

import httpx
import pytest

from once_fakes.presets.github import GITHUB_ISSUES, VISIBILITY_LAG_S
from pytest_once import Once, Report, Verdict, explore
from pytest_once.clock import EPOCH_S
from pytest_once.ledger import Ledger
from tests.fakes.presets.wire import Wire, shown

PATH = "/repos/octocat/pumps/issues"


@pytest.fixture
def github(ledger: Ledger) -> Wire:
    wire = Wire(ledger, GITHUB_ISSUES)
    wire.headers = {"authorization": "Bearer token"}
    return wire


def test_equal_issues_are_two_issues(github: Wire) -> None:
    """A client that sends again after a lost answer makes a second issue, key or not."""
    issue = {"title": "Pump 7 leaks", "labels": ["case-7"]}
    first = github.send("POST", PATH, issue, {"Idempotency-Key": "k"})
    second = github.send("POST", PATH, issue, {"Idempotency-Key": "k"})

    assert (first.status, second.status) == (201, 201)
    assert [shown(reply)["number"] for reply in (first, second)] == [1, 2]
    assert shown(first)["html_url"] == "https://github.com/octocat/pumps/issues/1"
    assert shown(first)["labels"] == [{"name": "case-7"}]
    assert len(github.ledger.effects()) == 2


def test_an_issue_is_in_lists_and_searches_later_only(github: Wire) -> None:
    """Not finding an issue at once does not mean that it is not there."""
    github.send("POST", PATH, {"title": "Pump 7 leaks", "body": "case 7", "labels": ["pump"]})
    found = "/search/issues?q=repo:octocat/pumps+is:open+%22case%207%22+label:pump"
    assert shown(github.send("GET", PATH)) == []
    assert shown(github.send("GET", found))["total_count"] == 0

    github.ledger.set_now(EPOCH_S + VISIBILITY_LAG_S)
    assert [one["number"] for one in shown(github.send("GET", PATH))] == [1]
    assert [one["number"] for one in shown(github.send("GET", found))["items"]] == [1]
    assert shown(github.send("GET", "/search/issues?q=case+8"))["total_count"] == 0
    assert shown(github.send("GET", f"{PATH}/1"))["title"] == "Pump 7 leaks"
    assert shown(github.send("GET", "/repos/octocat/valves/issues")) == []


def test_lists_come_in_pages_the_newest_first(github: Wire) -> None:
    """Who reads the first page only does not see an issue that is older than thirty others."""
    for number in range(32):
        github.send("POST", PATH, {"title": f"issue {number + 1}"})
    github.ledger.set_now(EPOCH_S + VISIBILITY_LAG_S)

    def numbers(query: str) -> list[int]:
        return [one["number"] for one in shown(github.send("GET", f"{PATH}{query}"))]

    assert numbers("") == list(range(32, 2, -1))
    assert numbers("?page=2") == [2, 1]
    assert numbers("?per_page=100") == list(range(32, 0, -1))
    assert numbers("?state=closed") == []
    assert numbers(f"?page={'9' * 5000}") == list(range(32, 2, -1))


def test_refusals_are_github_documents(github: Wire) -> None:
    """Clients read message and status from the document."""
    untitled = github.send("POST", PATH, {"body": "case 7"})
    assert untitled.status == 422
    assert shown(untitled)["message"] == 'Invalid request.\n\n"title" wasn\'t supplied.'
    assert shown(untitled)["status"] == "422"
    assert shown(github.send("POST", PATH, {"title": "t", "labels": "pump"}))["status"] == "422"
    assert shown(github.send("POST", PATH, b"{"))["message"] == "Problems parsing JSON"
    assert github.send("DELETE", PATH).status == 404
    assert github.send("GET", "/repos/octocat").status == 404
    github.headers = {}
    anonymous = github.send("POST", PATH, {"title": "t"})
    assert (anonymous.status, shown(anonymous)["message"]) == (401, "Requires authentication")
    assert github.ledger.effects() == []


def report_case(search_first: Callable[[httpx.Client], bool]) -> Report:
    """An agent files one issue for a case, and notes that it did."""

    def body(once: Once) -> None:
        github = once.provider("github", contract=GITHUB_ISSUES, base_url="https://api.github.com")
        with closing(sqlite3.connect(once.path / "agent.db")) as database, github.router:
            database.execute("CREATE TABLE IF NOT EXISTS filed(reference)")
            database.commit()
            if database.execute("SELECT 1 FROM filed").fetchone():
                return
            headers = {"authorization": "Bearer token"}
            with httpx.Client(base_url="https://api.github.com", headers=headers, verify=False) as client:
                if not search_first(client):
                    client.post(PATH, json={"title": "Pump 7 leaks", "body": "case 7"}).raise_for_status()
            database.execute("INSERT INTO filed VALUES ('case 7')")
            database.commit()

    return explore(body, soft_faults=0, restart_after=("61s",))


@pytest.mark.slow
def test_an_agent_that_files_again_after_a_crash_is_convicted() -> None:
    """The known-bad client, and its twin that waits and looks before it acts (S3.4, S3.5)."""
    blind = report_case(lambda client: False)
    assert blind.verdict is Verdict.DUPLICATE, blind.problem

    def listed(client: httpx.Client) -> bool:
        return any(one["body"] == "case 7" for one in client.get(PATH).raise_for_status().json())

    careful = report_case(listed)
    assert (careful.verdict, careful.coverage) == (Verdict.EXACTLY_ONCE, "exhausted"), careful.problem
