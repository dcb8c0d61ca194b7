"""Fake providers without pytest: `python -m once_fakes serve`, `show` and `list`."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import signal
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path

from once_fakes.application import Application
from once_fakes.certificates import Authority, require_trustme
from once_fakes.contract import Contract
from once_fakes.contracts import contract_named, contract_names
from once_fakes.entrance import Entrance, listen
from once_fakes.redirect import LOOPBACK, Place, variables
from once_fakes.showing import as_json, contents, print_tables
from once_fakes.table import markdown
from pytest_once.ledger import Ledger

_TOKEN = "once"
_INTERRUPTED = 128 + signal.SIGINT


class _Refused(Exception):
    """The command cannot be done as given; the message says what to change."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 0, 2 for a wrong call, 130 after Ctrl-C."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    try:
        if asked.command == "serve":
            return _serve(asked)
        code = _show(asked) if asked.command == "show" else _list(asked)
        sys.stdout.flush()
        return code
    except _Refused as error:
        print(f"once_fakes: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return _INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m once_fakes", description="Fake providers for any language's tests.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="{serve,show,list}")
    serve = commands.add_parser(
        "serve",
        help="answer as a provider until Ctrl-C or SIGTERM",
        description="Answer on 127.0.0.1 as a provider. Standard output begins with one line, the address; with --https"
        " or --redirect, lines follow with what clients need in their environment, and an empty line ends it.",
    )
    serve.add_argument("contract", metavar="NAME", help="a contract or preset; `list` lists them")
    serve.add_argument("--ledger", type=Path, required=True, metavar="FILE", help="what happened; made if missing")
    serve.add_argument("--port", type=int, default=0, help="0, the default, takes a free one")
    serve.add_argument("--https", action="store_true", help="print an https address; http works as well")
    serve.add_argument(
        "--redirect",
        action="append",
        default=[],
        metavar="HOST",
        help="answer for this real host, to clients that use the server as proxy; may be repeated",
    )
    serve.add_argument(
        "--kill-caller-after",
        type=int,
        metavar="N",
        help="SIGKILL the process that causes the N-th effect, before it is answered (Linux)",
    )
    show = commands.add_parser("show", help="print a ledger: arrivals, effects, receipts")
    show.add_argument("ledger", type=Path, metavar="FILE")
    show.add_argument("--json", action="store_true", help="all columns, as one JSON object")
    listing = commands.add_parser("list", help="list the contracts and presets")
    listing.add_argument("--markdown", action="store_true", help="as a table with every promise and its source")
    return parser


def _list(asked: argparse.Namespace) -> int:
    if asked.markdown:
        sys.stdout.write(markdown())
        return 0
    for name in contract_names():
        first = contract_named(name).assumptions()[0].partition(": ")[2]
        print(f"{name}: {first}")
    return 0


def _show(asked: argparse.Namespace) -> int:
    try:
        found = contents(asked.ledger)
    except (FileNotFoundError, ValueError) as error:
        raise _Refused(str(error)) from error
    if asked.json:
        print(as_json(found))
    else:
        print_tables(found, sys.stdout)
    return 0


def _serve(asked: argparse.Namespace) -> int:
    contract = named(asked.contract)
    if asked.https or asked.redirect:
        try:
            require_trustme()
        except ImportError as error:
            raise _Refused(str(error)) from error
    application = Application()
    application.serve(_TOKEN, _ledger(asked.ledger, contract))
    try:
        # At the root, since some clients take a host and a port but no path.
        for host in (*LOOPBACK, *asked.redirect):
            application.redirects.add(host, Place(_TOKEN, contract.name))
        if asked.kill_caller_after is not None:
            application.kill_caller(_TOKEN, asked.kill_caller_after)
    except ValueError as error:
        raise _Refused(str(error)) from error
    return asyncio.run(_until_told(asked, application))


async def _until_told(asked: argparse.Namespace, application: Application) -> int:
    loop = asyncio.get_running_loop()
    told: asyncio.Future[int] = loop.create_future()

    def tell(code: int) -> None:
        if not told.done():
            told.set_result(code)

    # Before there is anything to leave behind.
    loop.add_signal_handler(signal.SIGINT, tell, _INTERRUPTED)
    loop.add_signal_handler(signal.SIGTERM, tell, 0)
    try:
        listening = listen(asked.port)
    except (OSError, OverflowError) as error:
        raise _Refused(f"cannot listen on 127.0.0.1:{asked.port}: {error}; --port 0 takes a free one") from error
    entrance = Entrance(listening, application, application.redirects, application.connections)
    authority = Authority() if asked.https or asked.redirect else None
    try:
        if authority is not None:
            entrance.tls = authority.context
        serving = asyncio.create_task(entrance.serve())
        _announce(asked, entrance.port, authority)
        await asyncio.wait((told, serving), return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
    finally:
        application.close()
        if authority is not None:
            authority.close()
    sys.stderr.flush()
    # Not by cancelling tasks, some of which wait for clients. Between two requests no transaction is open.
    os._exit(told.result())


def _announce(asked: argparse.Namespace, port: int, authority: Authority | None) -> None:
    lines = [f"{'https' if asked.https else 'http'}://127.0.0.1:{port}"]
    if authority is not None:
        needed = variables(port, authority.ca_file)
        if not asked.redirect:
            needed = {name: value for name, value in needed.items() if value == authority.ca_file}
        lines += [f"export {name}={shlex.quote(value)}" for name, value in needed.items()]
        lines.append("")
    # One write, so that a script never reads half of it.
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def named(name: str) -> Contract:
    """The contract or preset of that name. Raises what `main` tells as a wrong call, with the valid names."""
    try:
        contract = contract_named(name)
    except ValueError as error:
        raise _Refused(str(error)) from error
    if contract.name == "smtp":
        raise _Refused(
            "smtp is no HTTP provider; its mail server is for tests: once.provider('mail', contract='smtp').smtp"
        )
    return contract


def _ledger(path: Path, contract: Contract) -> Path:
    """The ledger file with the provider in it, made if it is missing."""
    try:
        if path.exists() and path.stat().st_size == 0:
            path.unlink()  # made by mktemp or touch, to reserve the name
        ledger = Ledger(path) if path.exists() else Ledger.create(path)
        others = [one.name for one in ledger.providers() if (one.name, one.contract) != _row(contract)]
        if others:
            raise _Refused(
                f"{path} belongs to {', '.join(others)}, under another contract than that of {contract.name}, and its"
                " receipts would mean something else: name a new file with --ledger, or remove this one"
            )
        ledger.record_provider(*_row(contract), None, None)
    except sqlite3.DatabaseError as error:
        raise _Refused(f"{path} is not a ledger of once_fakes: {error}; name another file with --ledger") from error
    except OSError as error:
        raise _Refused(f"cannot open or make the ledger {path}: {error}") from error
    return path


def _row(contract: Contract) -> tuple[str, str]:
    return contract.name, contract.to_json()
