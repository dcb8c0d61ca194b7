"""Credentials and the fields that a project names are in no report: reports go to CI logs, tickets and mails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_once.checks import LogicalKey, Verdict
from pytest_once.faults import LifePlan, Schedule
from pytest_once.report import Report, Violation
from pytest_once.secrets import HIDDEN, Secrets
from tests.plugin.conftest import Lab
from tests.reporting.conftest import FORMATS, wanted

PLANTED = {
    "authorization": "sk-live-4f9a8e7b",
    "proxy": "cHJveHk6aHVudGVyMg",
    "cookie": "c00kie-0123456789",
    "password": "hunter2-of-the-payload",
    "card": "4242424242424242",
    "url": "pa55-in-the-url",
}

CLIENTS = {
    "httpx": """
    with httpx.Client(headers=HEADERS, verify=False, trust_env=False) as client:
        client.post(url, json=BODY)
""",
    "urllib": """
    request = urllib.request.Request(url, json.dumps(BODY).encode(), {**HEADERS, "Content-Type": "application/json"})
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request).read()
""",
    "aiohttp": """
    async def send():
        async with aiohttp.ClientSession(headers=HEADERS) as session:
            async with session.post(url, json=BODY) as response:
                await response.read()
    asyncio.run(send())
""",
}


def suite(client: str) -> str:
    imports = {"httpx": "import httpx", "urllib": "import urllib.request", "aiohttp": "import aiohttp"}[client]
    return f"""
import asyncio
import json
{imports}
import pytest

HEADERS = {{
    "Authorization": "Bearer {PLANTED["authorization"]}",
    "Proxy-Authorization": "Basic {PLANTED["proxy"]}",
    "Cookie": "theme=dark-mode; session={PLANTED["cookie"]}",
}}
BODY = {{"order": "o1", "password": "{PLANTED["password"]}", "card": {{"number": {PLANTED["card"]}}}}}

@pytest.mark.once_effect(soft_faults=1, faults=("lost-response",), redeliver=0)
def test_told(once):
    url = once.provider("pay").url + "/refunds"
    once.boundary("to redis://user:{PLANTED["url"]}@cache/0")
{client and CLIENTS[client]}
    print("sent", HEADERS, BODY)
    if once.path.joinpath("second").exists():
        raise RuntimeError("not again: {PLANTED["authorization"]} {PLANTED["password"]} {PLANTED["card"]}")
    once.path.joinpath("second").write_text("")

@pytest.mark.once_effect
def test_raises(once):
    url = once.provider("pay").url + "/refunds"
{client and CLIENTS[client]}
    raise RuntimeError(f"no: {{HEADERS}} {PLANTED["cookie"]} {PLANTED["password"]} {PLANTED["card"]}")
"""


def offenders(text: str) -> set[str]:
    return {name for name, value in PLANTED.items() if value in text}


@pytest.mark.parametrize("client", sorted(CLIENTS))
def test_no_report_shows_what_was_planted(lab: Lab, client: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 6: in headers, payload fields, URLs and in texts that repeat those values; every output is searched."""
    summary = lab.path / "summary.md"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    lab.ini("once_secret_fields = password card.number")
    lab.write(suite(client))
    result = lab.run("--once-chaos", *wanted(), "--junit-xml=junit.xml", "--tb=short")
    told = (lab.path / "report.json").read_text("utf-8")
    tests = {test["test"].partition("::")[2]: test for test in json.loads(told)["tests"]}
    assert tests["test_told"]["verdict"] == "DUPLICATE", tests["test_told"]["text"]
    assert tests["test_raises"]["coverage"] == "none"
    assert "no: " in tests["test_raises"]["text"]
    written = {f"report.{ending}": (lab.path / f"report.{ending}").read_text("utf-8") for ending in FORMATS}
    written |= {name: (lab.path / name).read_text("utf-8") for name in ("junit.xml", "summary.md")}
    for name, text in (*written.items(), ("the terminal", result.stdout.str() + result.stderr.str())):
        assert HIDDEN in text, name
        assert not offenders(text), name


def test_the_search_finds_what_is_not_hidden(lab: Lab) -> None:
    """The known-bad twin: without the setting the payload's fields are shown, and the test above would see them."""
    lab.write(suite("httpx"))
    result = lab.run("--once-chaos", *wanted("json"))
    assert offenders(result.stdout.str()) == offenders((lab.path / "report.json").read_text("utf-8"))
    assert offenders(result.stdout.str()) == {"password", "card"}


def test_a_plain_run_hides_them_too(lab: Lab) -> None:
    """Its counts name the logical key, which is made of the payload."""
    lab.ini("once_secret_fields = password")
    lab.write(
        """
import pytest

@pytest.mark.once_effect(key="o1")
def test_twice(once):
    for n in range(2):
        once.provider("pay").call("refund", {"order": f"x{n}", "password": "hunter2-of-the-payload"})
"""
    )
    result = lab.run()
    result.assert_outcomes(failed=1)
    ours = result.stdout.str().partition("OMISSION")[2]
    assert "password=***" in ours
    assert "hunter2" not in ours


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("Authorization: Bearer abcdefgh", "Authorization: ***"),
        ("{'authorization': 'Basic abcdefgh', 'x': 1}", "{'authorization': '***', 'x': 1}"),
        ("(b'Cookie', b'a=abcdefgh')", "(b'Cookie', b'***')"),
        ('set-cookie: "sid=abcdefgh"; Path=/', 'set-cookie: "***"; Path=/'),
        ("postgresql://me:s3cr%40t@host/db", "postgresql://***@host/db"),
        ("password=hunter22 order=o1", "password=*** order=o1"),
        ("Card(password='hunter22', order='o1')", "Card(password='***', order='o1')"),
        ("card.number=42 order=1", "card.number=*** order=1"),
        ("a cookie, which is nice", "a cookie, which is nice"),
        ("http://host:80/path?a=b@c", "http://host:80/path?a=b@c"),
        ("the password_hint=blue", "the password_hint=blue"),
    ],
)
def test_what_looks_like_a_secret_is_hidden_where_it_stands(text: str, hidden: str) -> None:
    """Nobody told us the value; its place gives it away. Innocent neighbours stay."""
    assert Secrets(("password", "card.number")).hidden(text) == hidden


def test_a_value_once_learnt_is_hidden_everywhere_but_schedules_still_replay() -> None:
    """An exception repeats it without its name, encoded or not. A schedule's marks are no secret."""
    secrets = Secrets()
    secrets.learn('Bearer tok"en/ü-1')
    schedule = Schedule((LifePlan(crash="abcdef"), LifePlan()))
    violation = Violation(
        Verdict.DUPLICATE,
        LogicalKey("pay", "refund", 'tok"en/ü-1'),
        1,
        2,
        schedule,
        'tok\\"en/\\u00fc-1 tok%22en%2F%C3%BC-1',
    )
    report = Report(name="test", verdict=Verdict.DUPLICATE, coverage="exhausted", violations=(violation,))
    (hidden,) = secrets.hidden(report).violations
    assert hidden.key == LogicalKey("pay", "refund", HIDDEN)
    assert hidden.detail == f"{HIDDEN} {HIDDEN}"
    assert hidden.schedule == schedule


def test_short_values_are_hidden_in_their_field_only() -> None:
    """Hiding every "1" would make the report unreadable and hide nothing."""
    secrets = Secrets(("pin",))
    assert secrets.hidden('{"pin":1,"n":1}') == '{"n":1,"pin":"***"}'
    assert secrets.hidden("effect number 1") == "effect number 1"
    secrets.learn("1234")
    assert secrets.hidden("pin 1234, order 123456") == "pin ***, order 123456"


def test_the_ledger_of_a_world_that_is_kept_has_no_credentials(tmp_path: Path) -> None:
    """What the seams see of them stays in memory."""
    from pytest_once import Once, replay

    def body(once: Once) -> None:
        import httpx

        with httpx.Client(headers={"Authorization": "Bearer sk-live-4f9a8e7b"}, trust_env=False) as client:
            client.post(once.provider("pay").url + "/refunds", json={"order": "o1"})

    replay(body, ".", keep=tmp_path)
    assert b"o1" in (tmp_path / "ledger.db").read_bytes()
    assert b"sk-live" not in b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
