"""The scratch directory of one test: its world, its ledger, the shelf of pictures. All of it is gone on close."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pytest_once.faults import Delivery
from pytest_once.ledger import Ledger
from pytest_once.once import Once
from pytest_once.scenario import ScenarioError
from pytest_once.secrets import Secrets
from pytest_once.stores import Store
from pytest_once.stores.opening import OpenStore, open_builtin
from pytest_once.world import scratch, sweep_stale

if TYPE_CHECKING:
    from once_fakes.mail_server import MailServer
    from once_fakes.server import LoopbackServer


class ProviderServer:
    """The loopback and mail servers of a session, started when a test first asks for one. Close it at the end."""

    def __init__(self) -> None:
        self._server: LoopbackServer | None = None
        self._mail: MailServer | None = None

    def address(self, token: str, ledger: Path, *, https: bool = False) -> str:
        """Base address below which the providers of this ledger answer."""
        return self._started().address(token, ledger, https=https)

    def ca_file(self) -> str:
        """The certificate that clients of an https address must trust."""
        return self._started().ca_file()

    def redirect(self, host: str, token: str, provider: str) -> dict[str, str]:
        """Let a provider answer for a real host; returns the environment that leads clients there."""
        server = self._started()
        server.redirect(host, token, provider)
        return server.environment()

    def mail_address(self, ledger: Path, provider: str) -> tuple[str, int]:
        """Host and port where mail is accepted for a provider of this ledger."""
        if self._mail is None:
            from once_fakes.mail_server import MailServer

            server = MailServer()
            server.start()
            self._mail = server
        return self._mail.address(ledger, provider)

    def forget_mail(self, port: int) -> None:
        """Accept no mail on that port any more."""
        if self._mail is not None:
            self._mail.forget(port)

    def _started(self) -> LoopbackServer:
        if self._server is None:
            from once_fakes.server import LoopbackServer

            server = LoopbackServer()
            server.start()
            self._server = server
        return self._server

    def forget(self, token: str) -> None:
        if self._server is not None:
            self._server.forget(token)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._mail is not None:
            self._mail.close()
            self._mail = None

    def __enter__(self) -> ProviderServer:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


_numbers = iter(range(1, 1_000_000_000))


class Premises:
    """Where one test happens. `once` is its fixture; `world` a memory-backed directory where there is one.

    open_store: makes the store that a URL names; the built-in ones are asked when it answers None. secrets: what must
    not be told of the test.
    """

    def __init__(
        self, server: ProviderServer, open_store: OpenStore = open_builtin, secrets: Secrets | None = None
    ) -> None:
        sweep_stale()
        self.root = scratch("world")
        self.world = self.root / "world"
        self.world.mkdir()
        self.shelf = self.root / "shelf"
        self.output = self.root / "output.txt"
        self.secrets = secrets or Secrets()
        self.ledger_path = self.root / "ledger.db"
        self._server = server
        self._open_store = open_store
        self._opened: dict[str, Store] = {}
        self._token = f"t{next(_numbers)}"
        self._address: str | None = None
        self._mail: dict[str, tuple[str, int]] = {}
        self.once = Once(self.world, Ledger.create(self.ledger_path), self.ask_server, self.open_address)

    def serve(self) -> str:
        """The address of this test's providers; starts the server when needed."""
        if self._address is None:
            self._address = self._server.address(self._token, self.ledger_path)
        return self._address

    def ask_server(self, what: str, argument: Any = None) -> Any:
        """What a provider needs of the servers: "address", "https", "ca_file", "redirect" of (host, provider), or
        "mail" of a provider: the host and port where it accepts mail."""
        if what == "mail":
            if argument not in self._mail:
                self._mail[argument] = self._server.mail_address(self.ledger_path, argument)
            return self._mail[argument]
        address = self.serve()
        if what == "https":
            return self._server.address(self._token, self.ledger_path, https=True)
        if what == "ca_file":
            return self._server.ca_file()
        if what == "redirect":
            host, provider = argument
            return self._server.redirect(host, self._token, provider)
        return address

    def deliver(self, delivery: Delivery, now_s: float) -> None:
        """Let a request on its way arrive at a virtual instant; nobody hears the answer."""
        from once_fakes.held import deliver

        self.once.ledger.set_now(now_s)
        deliver(self.once.ledger, delivery.number, delivery.way)

    def open(self, target: str) -> Store:
        """The store that a URL names, made when it is first asked for. Raises ScenarioError if nobody knows it."""
        store = self._opened.get(target)
        if store is None:
            store = self._open_store(target) or open_builtin(target)
            if store is None:
                raise ScenarioError(
                    f"once.track({target!r}): no store is known for {target.partition('://')[0]}://. Built in are "
                    "postgresql:// and redis://; others come with a plugin that implements pytest_once_stores, and a "
                    "directory is named by its path"
                )
            self._opened[target] = store
        return store

    def open_address(self, target: str) -> str:
        """Open a store, and give the URL to use instead of the one that names it."""
        return address_of(self.open(target), target)

    def printed(self) -> str:
        """What the last incarnation printed."""
        try:
            return self.output.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    def learn_secrets(self) -> None:
        """Learn what must not be told from the requests that are in the ledger now."""
        for arrival in self.once.ledger.arrivals():
            self.secrets.hidden(arrival.payload)

    def keep(self, directory: Path) -> None:
        """Copy the world and the ledger for inspection."""
        shutil.copytree(self.world, directory, dirs_exist_ok=True)
        shutil.copy2(self.ledger_path, directory / "ledger.db")

    def close(self) -> None:
        if self._address is not None:
            self._server.forget(self._token)
            self._address = None
        while self._mail:
            self._server.forget_mail(self._mail.popitem()[1][1])
        try:
            self.close_stores()
        finally:
            shutil.rmtree(self.root, ignore_errors=True)

    def close_stores(self) -> None:
        """Give up the stores that URLs named; one that is named again is opened anew."""
        while self._opened:
            getattr(self._opened.popitem()[1], "close", _nothing_to_close)()

    def __enter__(self) -> Premises:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def address_of(store: Store, target: str) -> str:
    """The URL by which the code under test reaches a store."""
    return str(getattr(store, "address", target))


def _nothing_to_close() -> None:
    """Most stores need no closing."""


Act = Callable[[Once], object]
