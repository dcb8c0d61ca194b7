"""Small suites to run. Each is the least code that shows one thing."""

GOOD = """
import pytest

@pytest.mark.once_effect
def test_good(once):
    reply = once.provider("pay", contract="client_key").call("refund", {"order": "o1"}, key="o1")
    assert reply.status == 200
"""
"""Right whatever happens: the provider knows the key."""

BAD = """
import pytest

@pytest.mark.once_effect
def test_bad(once):
    assert once.provider("pay").call("refund", {"order": "o1"}).status == 200
"""
"""Wrong as soon as anything is repeated: the provider knows no keys."""

AGENT = """
import sqlite3
import pytest

def refund(db, provider, mark_first):
    connection = sqlite3.connect(db)
    connection.execute("CREATE TABLE IF NOT EXISTS done (id TEXT PRIMARY KEY)")
    if connection.execute("SELECT 1 FROM done WHERE id = 'o1'").fetchone() is None:
        if not mark_first:
            provider.call("refund", {"order": "o1"})
        connection.execute("INSERT INTO done VALUES ('o1')")
        connection.commit()
        if mark_first:
            provider.call("refund", {"order": "o1"})
    connection.close()

@pytest.mark.once_effect(soft_faults=0)
def test_act_then_mark(once, tmp_path):
    refund(tmp_path / "agent.db", once.provider("pay"), mark_first=False)

@pytest.mark.once_effect(soft_faults=0)
def test_mark_then_act(once, tmp_path):
    refund(tmp_path / "agent.db", once.provider("pay"), mark_first=True)
"""
"""Two wrong protocols: one pays twice, one not at all, each after a crash between its two steps."""
