"""A headless Chromium, driven over its DevTools protocol through two pipes."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

Event = Mapping[str, Any]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_TIMEOUT = 60.0
"""Seconds after which an answer that does not come is a failure."""


def executable() -> str | None:
    """The browser that TURNLOG_CHROMIUM names, else one on the path; None when there is none."""
    named = os.environ.get("TURNLOG_CHROMIUM")
    if named:
        return named
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


class PageError(AssertionError):
    """A script that a test evaluates failed, or the browser refused a command."""


class Browser:
    """One browser with a profile of its own, without the network."""

    def __init__(self, path: str) -> None:
        self._profile = tempfile.mkdtemp(prefix="turnlog-chromium-")
        arguments = [
            path,
            "--headless=new",
            "--remote-debugging-pipe",
            f"--user-data-dir={self._profile}",
            "--no-first-run",
            "--no-default-browser-check",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-dev-shm-usage",
            "--disable-extensions",
            "--disable-gpu",
            "--hide-scrollbars",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
            "about:blank",
        ]
        (their_in, self._out), (self._in, their_out) = _pipe(), _pipe()
        null = os.open(os.devnull, os.O_RDWR)
        moves = [(null, 0), (null, 1), (null, 2), (their_in, 3), (their_out, 4)]
        actions = [(os.POSIX_SPAWN_DUP2, source, target) for source, target in moves]
        self._process = os.posix_spawn(path, arguments, os.environ, file_actions=actions, setsid=True)
        for handle in (their_in, their_out, null):
            os.close(handle)
        self._buffer = b""
        self._number = 0
        self.events: list[Event] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def page(self, *, width: int = 1440, height: int = 900) -> Page:
        """A new page of this size."""
        target = self.send("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.send("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        return Page(self, target, session, width, height)

    def send(self, method: str, params: Mapping[str, Any], session: str | None = None) -> Any:
        """Send a command and wait for its result; events that come meanwhile are kept."""
        self._number += 1
        command: dict[str, Any] = {"id": self._number, "method": method, "params": dict(params)}
        if session is not None:
            command["sessionId"] = session
        data = json.dumps(command).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        while True:
            message = self._receive()
            if message.get("id") == self._number:
                if "error" in message:
                    raise PageError(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message)

    def wait_for(self, is_it: Callable[[Event], bool]) -> Event:
        """The first event that is kept or comes and is the one."""
        seen = 0
        while True:
            for event in self.events[seen:]:
                if is_it(event):
                    return event
            seen = len(self.events)
            self.events.append(self._receive())

    def close(self) -> None:
        """End the browser and remove its profile."""
        os.killpg(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._in)
        os.close(self._out)
        shutil.rmtree(self._profile, ignore_errors=True)

    def _receive(self) -> dict[str, Any]:
        until = time.monotonic() + _TIMEOUT
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise PageError("The browser does not answer.")
            data = os.read(self._in, 1 << 20)
            if not data:
                raise PageError("The browser has ended.")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found


class Page:
    """One page of the browser."""

    def __init__(self, browser: Browser, target: str, session: str, width: int, height: int) -> None:
        self._browser, self._target, self._session = browser, target, session
        for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
            self.send(f"{domain}.enable")
        self.resize(width, height)

    def send(self, method: str, **params: Any) -> Any:
        """Send a command to this page."""
        return self._browser.send(method, params, self._session)

    def resize(self, width: int, height: int) -> None:
        """Give the page another size."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def color_scheme(self, name: str) -> None:
        """What the system prefers: `light` or `dark`."""
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def open(self, path: Path, fragment: str = "") -> None:
        """Open a file and wait until it has loaded and its script is done."""
        before = len(self._browser.events)
        self.send("Page.navigate", url=path.absolute().as_uri() + fragment)
        self._browser.wait_for(
            lambda event: (
                event.get("method") == "Page.loadEventFired"
                and event.get("sessionId") == self._session
                and event in self._browser.events[before:]
            )
        )

    def run(self, script: str) -> Any:
        """The value of an expression, awaited if it is a promise."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise PageError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    def settle(self) -> None:
        """Wait until the page has drawn what it was told to draw."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def key(self, key: str, *, code: int = 0, shift: bool = False, text: str = "") -> None:
        """Press a key."""
        common = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.send("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **common)
        self.send("Input.dispatchKeyEvent", type="keyUp", **common)

    def events(self, *methods: str) -> list[Event]:
        """The events of these names that this page has sent so far."""
        self.run("1")
        return [
            event
            for event in self._browser.events
            if event.get("method") in methods and event.get("sessionId") == self._session
        ]

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Write what the page shows as a PNG file."""
        data = self.send("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def pdf(self) -> bytes:
        """The page in its printed form."""
        return base64.b64decode(self.send("Page.printToPDF", printBackground=True)["data"])

    def close(self) -> None:
        """Close the page."""
        self._browser.send("Target.closeTarget", {"targetId": self._target})


def _pipe() -> tuple[int, int]:
    """A pipe whose ends are none of those that the browser takes."""
    low = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in low)
    for end in low:
        os.close(end)
    return high[0], high[1]
