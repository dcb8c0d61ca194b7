"""`once.process`: a program in another process, and in any language, is explored like a body."""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from once_fakes import CLIENT_KEY
from pytest_once import Once, ProcessFailed, Report, Verdict, descent, explore, replay
from pytest_once.boundaries import Boundary
from pytest_once.faults import KINDS, mark_of
from pytest_once.premises import Premises, ProviderServer
from pytest_once.scenario import ScenarioError
from tests.engine.bodies import proven, told, verdicts
from tests.engine.foreign import CAREFUL, FORGETFUL, python, running

NODE = Path(__file__).parents[2] / "examples" / "any_language"


def request_of(report: Report) -> Boundary:
    [request] = [boundary for boundary in report.boundaries if boundary.kind == "http"]
    return request


def ledger_rows(directory: Path, sql: str) -> list[Any]:
    with closing(sqlite3.connect(directory / "ledger.db")) as connection:
        return connection.execute(sql).fetchall()


# Verdicts


def test_a_program_that_forgets_its_key_is_convicted_where_it_asks() -> None:
    """Issue 4.4: killed after the effect and before the answer; the story names the request and the test's line."""
    report = explore(running(FORGETFUL), profile="crash")

    assert (report.verdict, report.coverage) == (Verdict.DUPLICATE, "exhausted")
    [violation] = report.violations
    assert violation.confirmed
    assert (violation.expected, violation.actual) == (1, 2)
    first, second = violation.story
    assert first.killed
    assert [(step.boundary.kind, step.boundary.target) for step in first.steps] == [
        ("process", "subprocess:python"),
        ("http", "pay POST /refunds"),
        ("process", "pay POST /refunds: answered"),
    ]
    assert [number for step in first.steps for _, number in step.effects] == [1]
    assert [number for step in second.steps for _, number in step.effects] == [2]
    assert {step.boundary.site.text for step in first.steps} == {
        'once.process(python(program), env={"PAY": once.provider("pay", contract=contract).url}, **options)'
    }


@pytest.mark.slow
def test_a_program_that_keeps_its_key_is_proven() -> None:
    """S4.1: also by a program that stores a random key and a time, which nobody saw it make."""
    report = explore(running(CAREFUL))
    assert proven(report), told(report)
    assert {outcome for row in report.matrix for outcome in row.outcomes.values()} == {"once"}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node: no program 'node' is installed")
@pytest.mark.parametrize(
    ("program", "verdict"), [("refund.mjs", Verdict.DUPLICATE), ("refund_fixed.mjs", Verdict.EXACTLY_ONCE)]
)
def test_a_node_program_is_judged_like_any_other(program: str, verdict: Verdict) -> None:
    """Issue 4.4: the same report, whatever the language, with the program's own files as world."""

    def body(once: Once) -> None:
        url = once.provider("payments", contract="client_key").url
        once.process(["node", NODE / program, "task.json", "order_1", "500"], env={"PAYMENTS_URL": url})

    report = explore(body, profile="crash")
    assert (report.verdict, report.coverage) == (verdict, "exhausted")
    assert all(violation.confirmed for violation in report.violations)
    assert "another program is cut where it starts, asks a provider and ends" in told(report)


@pytest.mark.slow
def test_a_status_says_what_the_end_means() -> None:
    """DESIGN 5: an answer instead of an exception. "Certainly not", after an effect, is false."""
    gives_up = "try:\n    ask(PAY, key='k')\nexcept OSError:\n    sys.exit(3)\n"
    one: dict[str, Any] = {"profile": "standard", "faults": ("reset-response",)}

    report = explore(running(gives_up, definite_failure=(3,)), **one)
    assert verdicts(report) == {"FALSE_FAILURE"}
    report = explore(running(gives_up, blocked=(3,)), blocked=("unknown",), **one)
    assert report.verdict is Verdict.ESCALATED
    report = explore(running(gives_up), **one)
    assert proven(report), told(report)


# Faults: each that is offered happens, and does what it says.

REPORTING = """
try:
    said = f"status {ask(PAY, key='k', timeout=0.3)[0]}"
except OSError as error:
    said = type(error).__name__
store("said", said)
"""
WHAT_IS_SEEN = {
    "reset-response": "ConnectionResetError",
    "error-before": "status 503",
    "error-after": "status 500",
    "duplicate": "status 200",
    "late-copy": "status 200",
    "lost-request": "TimeoutError",
    "lost-response": "TimeoutError",
    "late": "TimeoutError",
    "late-twice": "TimeoutError",
}


@pytest.fixture(scope="module")
def reporting() -> Report:
    return replay(running(REPORTING, client_timeout_s=0.3), ".")


def test_answers_are_lost_without_a_word_only_where_the_program_gives_up(reporting: Report) -> None:
    """A fault that the program could never notice would hang it, and prove nothing."""
    known = set(request_of(replay(running(REPORTING), ".")).faults)
    assert known == {fault for fault, seen in WHAT_IS_SEEN.items() if seen != "TimeoutError"}
    assert set(request_of(reporting).faults) == set(WHAT_IS_SEEN)


@pytest.mark.parametrize("fault", WHAT_IS_SEEN)
def test_each_fault_of_a_request_happens(fault: str, reporting: Report, tmp_path: Path) -> None:
    """Honesty: as many arrive, as many stay on their way, and the program sees what the report says."""
    kind = KINDS[fault]
    schedule = f"{kind.code}@{mark_of(request_of(reporting))}"
    report = replay(running(REPORTING, client_timeout_s=0.3), schedule, keep=tmp_path)

    assert (tmp_path / "said").read_text() == WHAT_IS_SEEN[fault], report.problem
    assert len(ledger_rows(tmp_path, "SELECT 1 FROM arrivals")) == kind.arrivals
    assert len(ledger_rows(tmp_path, "SELECT 1 FROM in_flight")) == kind.held
    assert len(ledger_rows(tmp_path, "SELECT 1 FROM effects")) == int(kind.effect)


@pytest.mark.slow
def test_a_lost_answer_convicts_what_takes_silence_for_refusal() -> None:
    """The program's own time-out is waited for, and what it makes of it is judged."""
    resends = (
        "if not os.path.exists('done'):\n"
        "    try:\n        ask(PAY, key=os.urandom(16).hex(), timeout=0.2)\n"
        "    except TimeoutError:\n        ask(PAY, key=os.urandom(16).hex())\n"
        "    store('done', 'yes')\n"
    )
    report = explore(running(resends, client_timeout_s=0.2), faults=("lost-response",), redeliver=0)
    assert report.verdict is Verdict.DUPLICATE
    assert report.matrix[1].outcomes["lost-response"] == "2x"


@pytest.mark.slow
def test_a_program_that_never_gives_up_is_told_so() -> None:
    """A promise of the test that is not kept must not pass for a fault that happened."""
    waits = "ask(PAY, key='k', timeout=30)"
    report = explore(running(waits, client_timeout_s=0.1), faults=("lost-request",))
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "once.process(client_timeout_s=0.1)" in told(report)


STALE = """
if not os.path.exists("asked"):
    ask(PAY, key="k")
    store("asked", ask(PAY, "GET", None)[1].decode())
"""


def test_a_question_can_be_answered_from_before(tmp_path: Path) -> None:
    """A look-up is a question: it is answered late or not at all, and leaves nothing."""

    def body(once: Once) -> None:
        pay = once.provider("pay", contract=replace(CLIENT_KEY, name="listing", lookup="list_only"))
        once.process(python(STALE), env={"PAY": pay.url})

    recorded = replay(body, ".", keep=tmp_path)
    assert recorded.passed, told(recorded)
    assert "order_1" in (tmp_path / "asked").read_text()
    question = recorded.boundaries[3]
    assert (question.target, set(question.faults)) == (
        "pay GET /refunds",
        {"reset-response", "error-before", "stale-read"},
    )
    report = replay(body, f"sr@{mark_of(question)}", keep=tmp_path)
    assert report.passed, told(report)
    assert "order_1" not in (tmp_path / "asked").read_text()


SENDING = """
host, _, path = PAY.removeprefix("http://").partition("/")
connection = HTTPConnection(host)
kinds = {"content-type": "text/plain"}
connection.request("PUT", f"/{path}/chunks?way=1", iter([b"one, ", b"two"]), kinds, encode_chunked=True)
assert connection.getresponse().read()
for method, name, status in (("HEAD", "head", 405), ("DELETE", "nothing", 200)):
    connection.request(method, f"/{path}/{name}")
    response = connection.getresponse()
    assert response.status == status
    response.read()
raw = connection.sock  # still the same one
raw.sendall(f"POST /{path}/continued HTTP/1.1\\r\\nhost: x\\r\\nexpect: 100-continue\\r\\n"
            "content-type: text/plain\\r\\ncontent-length: 4\\r\\n\\r\\n".encode())
assert raw.recv(1000).startswith(b"HTTP/1.1 100")
raw.sendall(b"bodyPOST /%s/pipelined HTTP/1.1\\r\\nhost: x\\r\\ncontent-length: 0\\r\\n\\r\\n" % path.encode())
got = b""
while got.count(b"HTTP/1.1 200") < 2:
    got += raw.recv(10000)
raw.close()
old = socket.create_connection(raw_address)
old.sendall(f"POST /{path}/old HTTP/1.0\\r\\ncontent-length: 0\\r\\n\\r\\n".encode())
old.shutdown(socket.SHUT_WR)
while piece := old.recv(10000):
    got += piece
assert got.count(b"HTTP/1.1 200") == 3, got
ask(PAY.replace("/pay", "/nobody"))
"""


def test_a_request_arrives_as_it_was_sent(tmp_path: Path) -> None:
    """Whatever a client makes of HTTP: pieces, questions before a body, one connection for several, or none to keep."""
    program = SENDING.replace("raw_address", "(host.split(':')[0], int(host.split(':')[1]))")
    report = replay(running(program, contract="none"), ".", keep=tmp_path)
    assert report.passed, (told(report), report.output)
    assert ledger_rows(tmp_path, "SELECT operation, payload FROM arrivals ORDER BY id") == [
        ("PUT /chunks", '{"?":{"way":"1"},"text":"one, two"}'),
        ("DELETE /nothing", "null"),
        ("POST /continued", '{"text":"body"}'),
        ("POST /pipelined", "null"),
        ("POST /old", "null"),
    ]
    assert [told for (told,) in ledger_rows(tmp_path, "SELECT what FROM told")][1] == "status 405"


# Programs that misbehave


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("sys.exit('no such order')", r"exit status 1; it wrote to its standard error: no such order"),
        ("os.kill(os.getpid(), 11)", "ended with signal 11"),
        ("time.sleep(60)", r"neither ended nor asked for anything for 0\.3 s \(timeout_s\) and was killed"),
        ("while True: print('y' * 4096)", "neither ended nor asked for anything"),
        (
            "pid = os.fork()\nif not pid:\n    os.setsid()\n    if os.fork(): os._exit(0)\n    time.sleep(60)",
            r"ended, but left something running .*: \d+ \(",
        ),
        ("os.write(1, bytes(range(256))); os.write(2, b'\\xff\\xfe'); sys.exit(1)", "exit status 1"),
        (
            "host, port = PAY.split('/')[2].split(':')\n"
            "one = socket.create_connection((host, int(port)))\n"
            "one.sendall(b'\\x00garbage\\r\\n\\r\\n')\n"
            "sys.exit(one.recv(100)[:12].decode())",
            r"standard error: HTTP/1\.1 400",
        ),
    ],
    ids=["fails", "crashes", "hangs", "talks", "leaves a daemon", "writes bytes", "speaks no HTTP"],
)
def test_a_program_that_does_not_end_well_is_told_as_it_ended(program: str, why: str) -> None:
    """What a person needs to know to mend it, and where: the line of once.process."""
    report = explore(running(program, timeout_s=0.3))
    assert report.verdict is Verdict.INCONCLUSIVE
    assert re.search(rf"the fault-free run raised ProcessFailed: .*{why}", report.problem, re.DOTALL), report.problem
    assert "foreign.py:" in report.problem


def test_what_it_prints_is_in_the_report() -> None:
    """Both outputs, as those of a body."""
    report = explore(running("print('to out'); sys.stdout.flush(); os.write(2, b'to err'); sys.exit(1)"))
    assert "to out" in report.output
    assert "to err" in report.output


def test_a_program_that_is_not_there_is_told() -> None:
    """Before anything else can be said."""

    def body(once: Once) -> None:
        once.process(["no-such-program-anywhere"])

    report = explore(body)
    assert "the program 'no-such-program-anywhere' cannot be started" in report.problem
    assert "Install it" in report.problem


@pytest.mark.parametrize(
    "options",
    [{"command": []}, {"command": "true"}, {"command": [1]}, {"timeout_s": 0}, {"client_timeout_s": 4.5}],
    ids=str,
)
def test_a_call_that_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    """With the argument's name."""

    def body(once: Once) -> None:
        once.process(**{"command": ["true"], **options})

    assert "once.process(" in explore(body).problem


def test_a_request_past_the_relay_is_found() -> None:
    """An address that it has from elsewhere than from the test: the ledger tells."""

    def body(once: Once) -> None:
        url = once.provider("pay", contract="client_key").url
        once.process(
            python("ask(bytes.fromhex(os.environ['HIDDEN']).decode(), key='k')"), env={"HIDDEN": url.encode().hex()}
        )

    report = explore(body)
    assert report.verdict is Verdict.ESCAPED_EFFECT
    assert "'pay' received a request that passed no boundary" in told(report)


# Several processes, and several requests

HELPERS = """
if not os.path.exists("done"):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            ask(PAY, key="k")
            store("done", "yes")
"""


def test_what_a_program_leaves_running_still_belongs_to_it() -> None:
    """The run is over when the last process has ended: a request that a daemon makes is one of the program's."""
    report = explore(running(HELPERS), profile="crash")
    assert proven(report), told(report)
    assert [boundary.target for boundary in report.boundaries][1:] == [
        "pay POST /refunds",
        "pay POST /refunds: answered",
    ]


LINGERING = """
beats, hears = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(PIDS, "a") as file:
            file.write(f"{os.getpid()}\\n")
        while not os.path.exists("done"):
            beat = os.open("beat", os.O_CREAT | os.O_WRONLY)
            os.pwrite(beat, b"x", 0)
            os.close(beat)
            if hears is not None:
                os.write(hears, b"x")
                hears = None
            time.sleep(0.001)
    os._exit(0)
if not os.path.exists("done"):
    os.read(beats, 1)
    ask(PAY, key="k")
    store("done", "yes")
"""


@pytest.mark.slow
def test_nothing_of_a_killed_program_lives_on(tmp_path: Path) -> None:
    """A daemon in a session of its own is gone before the next life begins, or it would write into that one's world."""
    pids = tmp_path / "pids"

    def body(once: Once) -> None:
        daemons = map(int, pids.read_text().split() if pids.exists() else ())
        assert [pid for pid in daemons if descent.lives(pid)] == []
        running(f"PIDS = {str(pids)!r}\n{LINGERING}")(once)

    start, request, answered = replay(body, ".").boundaries
    pids.unlink()
    report = replay(body, f"x@{mark_of(request)}/x@{mark_of(answered)}/.")
    assert [life.ending for life in report.replayed][2:] == ["returned: done"]
    assert [life.killed for life in report.replayed] == [True, True, False]
    assert len(pids.read_text().split()) == 3 + 3  # the recording's lives, and these
    assert start.target == "subprocess:python"


def test_a_daemon_that_stays_is_ended_too(tmp_path: Path) -> None:
    """The run has failed, and leaves nothing."""
    pids = tmp_path / "pids"
    stays = LINGERING.replace('os.path.exists("done")', "False")
    report = explore(running(f"PIDS = {str(pids)!r}\n{stays}", timeout_s=0.3), profile="crash")
    assert "left something running" in report.problem
    assert [pid for pid in map(int, pids.read_text().split()) if descent.lives(pid)] == []


AT_ONCE = """
import threading
if not os.path.exists("done"):
    threads = [threading.Thread(target=ask, args=(PAY,), kwargs={"key": n, "path": f"/{n}"}) for n in ("a", "b", "c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store("done", "yes")
"""


@pytest.mark.slow
def test_requests_at_the_same_time_are_cut_one_after_the_other() -> None:
    """Each may be the last before the crash, in the same order in each run."""
    report = explore(running(AT_ONCE), profile="crash")
    assert proven(report), told(report)
    requests = [boundary.target for boundary in report.boundaries if boundary.kind == "http"]
    assert requests == ["pay POST /refunds/a", "pay POST /refunds/b", "pay POST /refunds/c"]


# A plain run


def test_it_runs_plainly_where_nobody_explores(tmp_path: Path) -> None:
    """Without --once-chaos the program talks to the fake itself, and its effects are in the ledger."""
    with ProviderServer() as server, Premises(server) as premises:
        once = premises.once
        running(CAREFUL)(once)
        assert len(once.ledger.effects()) == 1
        assert (once.path / "done").exists()
        ended = once.process(python("print('out'); os.write(2, b'err'); sys.exit(4)"), done=(4,))
        assert (ended.returncode, ended.stdout, ended.stderr) == (4, "out\n", "err")
        with pytest.raises(ProcessFailed, match="exit status 4") as failed:
            once.process(python("sys.exit(4)"))
        assert failed.value.status == 4
        with pytest.raises(ScenarioError, match="cannot be started"):
            once.process(["no-such-program-anywhere"])
        with pytest.raises(ProcessFailed, match="and was killed"):
            once.process(python("store('pid', str(os.getpid()))\ntime.sleep(60)"), timeout_s=0.3)
        assert not descent.lives(int((once.path / "pid").read_text()))
