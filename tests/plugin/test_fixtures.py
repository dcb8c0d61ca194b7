"""Which fixtures are the process and which are the world around it."""

from __future__ import annotations

from tests.plugin.conftest import Lab

LOGGED = """
import os
import pytest

LOG = os.open({log!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)  # here: no incarnation may open a file out there

def log(word):
    os.write(LOG, f"{{word}} {{os.getpid() == PARENT}}\\n".encode())

PARENT = os.getpid()
"""


def logged(lab: Lab, source: str) -> str:
    return LOGGED.format(log=str(lab.path / "log.txt")) + source


def lines(lab: Lab) -> list[str]:
    return (lab.path / "log.txt").read_text().splitlines()


def test_function_fixtures_are_rebuilt_in_each_incarnation_and_torn_down_only_at_a_natural_end(lab: Lab) -> None:
    """A restarted process builds everything anew, and a killed one cleans up nothing."""
    lab.write(
        logged(
            lab,
            """
@pytest.fixture
def client(request):
    log("up")
    request.addfinalizer(lambda: log("down"))

@pytest.mark.once_effect
def test_paid(once, client):
    once.boundary("before paying")
    reply = once.provider("pay", contract="client_key").call("refund", {"order": "o1"}, key="o1")
    assert reply.status == 200
    log("end")
""",
        )
    )
    lab.explore().assert_outcomes(passed=1)
    seen = lines(lab)
    assert "up True" not in seen and "down True" not in seen, "neither in the parent"
    assert seen.count("up False") == seen.count("down False") == seen.count("end False") >= 3


def test_a_killed_incarnation_tears_nothing_down(lab: Lab) -> None:
    """SIGKILL leaves no time for finalizers; a harness that runs them hides what they would have cleaned."""
    lab.write(
        logged(
            lab,
            """
@pytest.fixture
def client():
    log("up")
    yield
    log("down")

@pytest.mark.once_effect(redeliver=0)
def test_paid(once, client, tmp_path):
    once.provider("pay").call("refund", {"order": "o1"})
    once.boundary("after paying")
""",
        )
    )
    result = lab.explore()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*confirmed by SIGKILL*"])
    replayed = next(line for line in result.stdout.lines if "replay: " in line).partition("--once-replay=")[2]
    assert "x@" in replayed
    (lab.path / "log.txt").unlink()
    lab.run(f"--once-replay={replayed}").assert_outcomes(failed=1)
    assert lines(lab).count("up False") > lines(lab).count("down False")


def test_module_and_session_fixtures_are_set_up_once_in_the_parent(lab: Lab) -> None:
    """They stand for what outlives the process: a container, a database server."""
    lab.write(
        logged(
            lab,
            """
@pytest.fixture(scope="session")
def server():
    log("server up")
    yield "server"
    log("server down")

@pytest.fixture(scope="module")
def schema(server):
    log("schema up")
    yield server
    log("schema down")

@pytest.mark.once_effect
@pytest.mark.parametrize("n", [1, 2])
def test_paid(once, schema, n):
    reply = once.provider("pay", contract="client_key").call("refund", {"order": n}, key=f"o{n}")
    assert schema == "server" and reply.status == 200
""",
        )
    )
    lab.explore().assert_outcomes(passed=2)
    assert lines(lab) == ["server up True", "schema up True", "schema down True", "server down True"]


def test_tmp_path_and_once_path_are_the_world_and_stay(lab: Lab) -> None:
    """What the process stores is all that a restart finds; another directory each time would lose it."""
    lab.write(
        logged(
            lab,
            """
@pytest.fixture
def store(tmp_path):
    return tmp_path / "done"

@pytest.mark.once_effect
def test_paid(once, store, tmp_path):
    log(f"{tmp_path} {once.path}")
    reply = once.provider("pay", contract="client_key").call("refund", {"order": "o1"}, key="o1")
    assert reply.status == 200
    store.write_text("yes")
    once.path.joinpath("done").write_text("yes")
""",
        )
    )
    lab.explore().assert_outcomes(passed=1)
    assert len(lines(lab)) > 3
    assert len(set(lines(lab))) == 1


def test_what_a_fixture_stores_is_part_of_the_story(lab: Lab) -> None:
    """A crash inside a fixture is a crash of the process: its commits are boundaries too."""
    lab.write(
        """
import sqlite3
import pytest

@pytest.fixture
def orders(tmp_path):
    connection = sqlite3.connect(tmp_path / "orders.db")
    connection.execute("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY)")
    with connection:
        connection.execute("INSERT OR IGNORE INTO orders VALUES ('o1')")
    yield connection
    connection.close()

@pytest.mark.once_effect
def test_paid(once, orders):
    (order,) = orders.execute("SELECT id FROM orders").fetchone()
    once.provider("pay").call("refund", {"order": order})
"""
    )
    result = lab.explore()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*1 orders.db CREATE*", "*2 orders.db COMMIT*", "*3 pay refund*"])


def test_autouse_and_monkeypatch_fixtures_apply_in_each_incarnation(lab: Lab) -> None:
    """Environment and patches are part of how the process is started."""
    lab.write(
        """
import os
import pytest

@pytest.fixture(autouse=True)
def account(monkeypatch):
    assert "ACCOUNT" not in os.environ
    monkeypatch.setenv("ACCOUNT", "a1")
    yield
    assert os.environ["ACCOUNT"] == "a1"

@pytest.mark.once_effect
def test_paid(once, monkeypatch):
    monkeypatch.setattr(os, "sep", "!")
    order = os.environ["ACCOUNT"] + os.sep
    reply = once.provider("pay", contract="client_key").call("refund", {"order": order}, key="o1")
    assert reply.status == 200

def test_afterwards():
    assert os.sep != "!"
"""
    )
    lab.explore().assert_outcomes(passed=2)


def test_capsys_and_caplog_work_inside(lab: Lab) -> None:
    """Existing tests use them, and become exactly-once proofs by one marker."""
    lab.write(
        """
import logging
import pytest

@pytest.mark.once_effect
def test_paid(once, capsys, caplog):
    reply = once.provider("pay", contract="client_key").call("refund", {"order": "o1"}, key="o1")
    print("paid")
    logging.getLogger("agent").warning("paid")
    assert reply.status == 200
    assert capsys.readouterr().out == "paid\\n"
    assert caplog.messages == ["paid"]
"""
    )
    lab.explore().assert_outcomes(passed=1)


def test_a_fixture_that_fails_at_teardown_does_not_hide_what_the_body_raised(lab: Lab) -> None:
    """The exception that the body ends with is its claim; cleaning up comes after."""
    lab.write(
        """
import pytest

class Unknown(Exception):
    pass

@pytest.fixture
def client():
    yield
    raise RuntimeError("cannot close")

@pytest.mark.once_effect
def test_paid(once, client):
    once.provider("pay").call("refund", {"order": "o1"})
    raise Unknown("who knows")
"""
    )
    result = lab.explore()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["INCONCLUSIVE  the fault-free run raised Unknown: who knows*"])


def test_a_wider_fixture_that_fails_is_an_error_of_pytest(lab: Lab) -> None:
    """It fails in the parent, before anything is explored, as in any run."""
    lab.write(
        """
import pytest

@pytest.fixture(scope="module")
def server():
    raise RuntimeError("no server")

@pytest.mark.once_effect
def test_paid(once, server):
    pass
"""
    )
    result = lab.explore()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["E   *RuntimeError: no server", "1 without an answer"])


def test_a_connection_of_a_module_fixture_is_refused_with_the_remedy(lab: Lab) -> None:
    """No process inherits an open connection from the one that crashed: a pass would be about something else."""
    lab.write(
        """
import sqlite3
import pytest

@pytest.fixture(scope="module")
def connection(tmp_path_factory):
    connection = sqlite3.connect(tmp_path_factory.mktemp("db") / "agent.db")
    connection.execute("CREATE TABLE t (id)")
    yield connection
    connection.close()

@pytest.mark.once_effect
def test_paid(once, connection):
    reply = once.provider("pay", contract="client_key").call("refund", {"order": "o1"}, key="o1")
    assert reply.status == 200
    connection.execute("INSERT INTO t VALUES (1)")
    connection.commit()
"""
    )
    result = lab.explore()
    result.assert_outcomes(failed=1)
    text = " ".join(result.stdout.str().split())
    assert "agent.db was opened before the incarnation" in text
    assert "open it in the test, or in a function-scoped fixture" in text
    assert "(test_it.py:15)" in text
