"""A headless Chromium, driven over its DevTools protocol: only what the tests of the page need."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
LIMIT_S = 240.0  # only a test that fails waits so long


class Page:
    """One page. `requests` are the URLs that it and its workers requested; `problems` what its console reported."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.number = 0
        self.requests: list[str] = []
        self.problems: list[str] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.recv(LIMIT_S))
            self._note(message)
            if message.get("id") == self.number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result

    def _note(self, message: dict[str, Any]) -> None:
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(parameters["exceptionDetails"])[:500])
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.problems.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")

    def go(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def before_scripts(self, code: str) -> None:
        """Run a script in every document before its own scripts."""
        self.call("Page.addScriptToEvaluateOnNewDocument", source=code)

    def evaluate(self, code: str) -> Any:
        """The value of an expression; a promise is awaited."""
        answer = self.call("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, code: str, limit_s: float = LIMIT_S) -> Any:
        """Waits until an expression is true, and returns its value."""
        limit = time.monotonic() + limit_s
        while True:
            try:
                if value := self.evaluate(code):
                    return value
            except AssertionError:  # the page is being replaced
                pass
            assert time.monotonic() < limit, f"never true: {code}; {self.problems}"
            self.evaluate("new Promise((done) => setTimeout(done, 100))")

    def size(self, width: int, height: int, *, mobile: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def theme(self, name: str) -> None:
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


class Browser:
    """A running Chromium."""

    def __init__(self, port: int, open_sockets: ExitStack) -> None:
        self.port = port
        self.open_sockets = open_sockets

    def page(self) -> Page:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/json/new?about:blank", method="PUT")
        with urllib.request.urlopen(request, timeout=LIMIT_S) as reply:
            url = json.loads(reply.read())["webSocketDebuggerUrl"]
        return Page(self.open_sockets.enter_context(connect(url, max_size=None)))


@contextmanager
def chromium(*options: str) -> Iterator[Browser]:
    """Start Chromium; end it and all its processes."""
    assert CHROMIUM is not None
    folder = Path(tempfile.mkdtemp(prefix="hv"))
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
    command += ["--disable-background-networking", "--disable-component-update", "--no-first-run", "--disable-sync"]
    command += ["--disable-dev-shm-usage", "--hide-scrollbars", f"--user-data-dir={folder}", *options, "about:blank"]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    open_sockets = ExitStack()
    try:
        limit = time.monotonic() + LIMIT_S
        while not (folder / "DevToolsActivePort").exists():
            assert process.poll() is None
            assert time.monotonic() < limit, "Chromium did not start"
            os.sched_yield()
        while not (lines := (folder / "DevToolsActivePort").read_text().split()):
            os.sched_yield()
        yield Browser(int(lines[0]), open_sockets)
    finally:
        open_sockets.close()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)
