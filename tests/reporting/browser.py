"""A real browser, spoken to through a pair of pipes: what it shows of a file, and what it would have fetched."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

COMMANDS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE_S = 60.0


def installed() -> str | None:
    """The path of a browser that can be used, or None."""
    return next((path for name in COMMANDS if (path := shutil.which(name))), None)


_AT_3_AND_4 = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for place, end in zip((3, 4), ends):
    os.dup2(end, place)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """One page in a headless Chromium (https://chromedevtools.github.io/devtools-protocol/). Close it at the end.

    Messages are JSON, each ended by a NUL byte, on descriptor 3 to it and 4 from it.
    """

    def __init__(self, command: str, profile: Path) -> None:
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        options = [
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
            *("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *("--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"),
        ]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _AT_3_AND_4, str(to_read), str(to_write), command, *options],
            pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._received = b""
        self._numbers = iter(range(1, 1_000_000))
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> Any:
        """A command; returns its result. Raises RuntimeError if the browser refuses it."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._listen()).get("id") != number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def _listen(self) -> dict[str, Any]:
        end_s = time.monotonic() + PATIENCE_S
        while b"\0" not in self._received:
            piece = os.read(self._from, 1 << 20)
            if not piece or time.monotonic() > end_s:
                raise RuntimeError("the browser is gone")
            self._received += piece
        text, _, self._received = self._received.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def view(self, width: int, height: int, *, dark: bool = False, scripts: bool = True) -> None:
        """How the next page is looked at."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Emulation.setScriptExecutionDisabled", value=not scripts)

    def open(self, file: Path) -> None:
        """Show a file, and wait until it is loaded."""
        self.events.clear()
        self.send("Page.navigate", url=file.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._listen())

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page. Raises RuntimeError if it throws."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key, such as "ArrowRight" or "/"."""
        text = {"text": key} if len(key) == 1 else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key)

    def complaints(self) -> list[str]:
        """What the page has reported: errors of its script, and what its policy refused."""
        thrown = [event["params"] for event in self.events if event.get("method") == "Runtime.exceptionThrown"]
        logged = [event["params"] for event in self.events if event.get("method") == "Log.entryAdded"]
        return [one["exceptionDetails"]["text"] for one in thrown] + [one["entry"]["text"] for one in logged]

    def fetched(self) -> list[str]:
        """The addresses that the page has asked for."""
        return [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]

    def screenshot(self, file: Path, *, whole: bool = False) -> None:
        """A PNG of what is visible, or of the whole page."""
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        """End the browser."""
        self._session = None
        try:
            self.send("Browser.close")
        except (RuntimeError, OSError):
            self._process.kill()  # it did not listen any more
        self._process.wait(PATIENCE_S)
        os.close(self._to)
        os.close(self._from)
