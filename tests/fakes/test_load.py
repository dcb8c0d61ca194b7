"""Under load the server loses nothing and does nothing twice. How fast it is, benchmarks/load.py says."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import httpx
import pytest

from once_fakes import CLIENT_KEY, Provider
from once_fakes.server import LoopbackServer
from pytest_once.ledger import Ledger


@pytest.fixture(scope="module")
def server() -> Iterator[LoopbackServer]:
    server = LoopbackServer()
    server.start()
    yield server
    server.close()


@pytest.fixture
def pay(server: LoopbackServer, ledger: Ledger) -> Iterator[Provider]:
    yield Provider("pay", CLIENT_KEY, ledger, lambda: server.address("token", ledger.path))
    server.forget("token")


async def post_all(url: str, keys: list[list[str]]) -> list[bytes]:
    """For each list a connection of its own; all are open before the first request is sent. Returns the answers."""
    address = httpx.URL(url)
    opened = await asyncio.gather(*(asyncio.open_connection(address.host, address.port) for _ in keys))

    async def post(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str) -> bytes:
        head = f"POST {address.path}/r HTTP/1.1\r\nhost: x\r\nidempotency-key: {key}\r\ncontent-length: 0\r\n\r\n"
        writer.write(head.encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 "), answer
        return await reader.readexactly(int(answer.lower().partition(b"content-length: ")[2].partition(b"\r")[0]))

    async def post_each(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, mine: list[str]) -> list[bytes]:
        answers = [await post(reader, writer, key) for key in mine]
        writer.close()
        return answers

    each = await asyncio.gather(*(post_each(*pair, mine) for pair, mine in zip(opened, keys, strict=True)))
    return [answer for answers in each for answer in answers]


def test_200_connections_with_one_key_have_one_effect(pay: Provider, ledger: Ledger) -> None:
    """4.7: a check before the write, and two of them would pass it."""
    answers = asyncio.run(post_all(pay.url, [["k"]] * 200))
    assert len(answers) == 200
    assert len(set(answers)) == 1
    assert Counter(arrival.outcome for arrival in ledger.arrivals()) == {"executed": 1, "replayed": 199}
    assert len(ledger.effects()) == 1


def test_every_request_of_many_clients_is_in_the_ledger(pay: Provider, ledger: Ledger) -> None:
    """4.7: none lost, none twice, each answer to the one who asked."""
    keys = [[f"{client}-{number}" for number in range(50)] for client in range(20)]
    answers = asyncio.run(post_all(pay.url, keys))
    assert len(set(answers)) == 1000
    arrivals = ledger.arrivals()
    assert sorted(arrival.key or "" for arrival in arrivals) == sorted(key for mine in keys for key in mine)
    assert len(ledger.effects()) == len(ledger.receipts()) == 1000
    for client in range(20):
        own = [arrival.key for arrival in arrivals if (arrival.key or "").startswith(f"{client}-")]
        assert own == keys[client], "a client's requests arrived out of order"
