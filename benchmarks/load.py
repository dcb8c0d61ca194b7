"""How many requests a second the loopback server takes: `python benchmarks/load.py`.

The server is held to one core, the client to the others. Each request has a key of its own and is one effect; at the
end all must be in the ledger. Then 200 connections send one key at once. Nothing is asserted about speed; the numbers
are for people.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "fakes")]

import httpx  # noqa: E402

from once_fakes import CLIENT_KEY, Provider  # noqa: E402
from once_fakes.server import LoopbackServer  # noqa: E402
from pytest_once.ledger import Ledger  # noqa: E402

BODY = b'{"amount": 5, "currency": "eur", "charge": "ch_1"}'


async def post(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, key: str) -> bytes:
    """One request on an open connection; returns the answer's body."""
    head = (
        f"POST {path}/v1/refunds HTTP/1.1\r\nhost: 127.0.0.1\r\nidempotency-key: {key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(BODY)}\r\n\r\n"
    )
    writer.write(head.encode() + BODY)
    answer = await reader.readuntil(b"\r\n\r\n")
    if not answer.startswith(b"HTTP/1.1 200 "):
        raise RuntimeError(answer.decode())
    return await reader.readexactly(int(answer.lower().partition(b"content-length: ")[2].partition(b"\r")[0]))


async def load(url: httpx.URL, clients: int, requests: int) -> None:
    """`requests` keyed requests, each one effect, over so many connections."""

    async def one(client: int) -> None:
        reader, writer = await asyncio.open_connection(url.host, url.port)
        for number in range(requests // clients):
            await post(reader, writer, url.path, f"{client}-{number}")
        writer.close()

    await asyncio.gather(*map(one, range(clients)))


async def one_key(url: httpx.URL, clients: int) -> set[bytes]:
    """One key over so many connections, all open before; returns the different answers."""
    opened = await asyncio.gather(*(asyncio.open_connection(url.host, url.port) for _ in range(clients)))
    answers = await asyncio.gather(*(post(reader, writer, url.path, "one") for reader, writer in opened))
    for _, writer in opened:
        writer.close()
    return set(answers)


def cpu_s(pid: int) -> float:
    """CPU time that a process has used, in seconds (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=20)
    asked = parser.parse_args()
    server = LoopbackServer()
    server.start()
    assert server.pid is not None
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(server.pid, cores[:1])
        os.sched_setaffinity(0, cores[1:] or cores)
    with tempfile.TemporaryDirectory() as folder:
        try:
            ledger = Ledger.create(Path(folder) / "ledger.db")
            pay = Provider("pay", CLIENT_KEY, ledger, lambda: server.address("load", ledger.path))
            url = httpx.URL(pay.url)
            began, used_s = time.perf_counter(), cpu_s(server.pid)
            asyncio.run(load(url, asked.clients, asked.requests))
            took_s, used_s = time.perf_counter() - began, cpu_s(server.pid) - used_s
            effects = len(ledger.effects())
            print(f"{asked.requests} requests over {asked.clients} connections: {asked.requests / took_s:.0f} a second")
            print(f"  of the server's CPU {used_s:.2f} s in {took_s:.2f} s; effects in the ledger: {effects}")
            answers = asyncio.run(one_key(url, 200))
            print(f"one key over 200 connections: {len(ledger.effects()) - effects} effect, {len(answers)} answer")
        finally:
            server.close()


if __name__ == "__main__":
    main()
