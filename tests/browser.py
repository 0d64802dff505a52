"""A real browser without a window, driven through the pipes of its debugging protocol."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

#: What Chromium is called where
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

#: Without a window and without network; the sandbox does not work for root, and only pages of our own are opened
FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --hide-scrollbars --remote-debugging-pipe""".split()

#: The seconds to wait for an answer: the first one comes when the browser has started
TIMEOUT = 60


@cache
def find() -> str | None:
    """Find a browser that is installed completely, if there is one."""
    for program in filter(None, map(shutil.which, NAMES)):
        if subprocess.run([program, "--version"], capture_output=True, check=False).returncode == 0:
            return program
    return None


class Page:
    """A page in the browser."""

    def __init__(self, commands: int, answers: int):
        self.commands = commands
        self.answers = answers
        self.numbers = itertools.count(1)
        self.rest = b""
        self.session: dict[str, str] = {}
        #: all that the browser has told
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = {"sessionId": self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.answers], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(self.answers, 2**16) if ready else b""
            assert part, "the browser does not answer"
            self.rest += part
        message, _, self.rest = self.rest.partition(b"\0")
        return dict(json.loads(message))

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol, and wait for its result."""
        number, deadline = next(self.numbers), time.monotonic() + TIMEOUT
        message = {"id": number, "method": method, "params": params, **self.session}
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])
            self.events.append(answer)

    def open(self, path: Path, width: int, height: int = 900) -> None:
        """Open a file in a window of some size, and wait until it is loaded."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        deadline = time.monotonic() + TIMEOUT
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive(deadline))

    def evaluate(self, expression: str) -> Any:
        """Evaluate JavaScript."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def click(self, selector: str) -> None:
        """Press the mouse button on an element, wherever it is."""
        box = f"document.querySelector({json.dumps(selector)})"
        x, y = self.evaluate(
            f"{box}.scrollIntoView({{block: 'center', behavior: 'instant'}}); "
            f"(r => [r.x + r.width / 2, r.y + r.height / 2])({box}.getBoundingClientRect())"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def errors(self) -> list[dict[str, Any]]:
        """Return all errors on the console, and those that a script did not catch."""
        self.evaluate("0")
        return [
            event
            for event in self.events
            if event["method"] == "Runtime.exceptionThrown"
            or (event["method"] == "Runtime.consoleAPICalled" and event["params"]["type"] == "error")
            or (event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] == "error")
        ]

    def screenshot(self, path: Path) -> None:
        """Write a picture of the whole page."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {**size, "scale": 1}
        picture = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(picture))


@contextlib.contextmanager
def browse(program: str, profile: Path) -> Iterator[Page]:
    """Start a browser with a profile of its own, and end it afterwards."""
    their_end, commands = os.pipe()
    answers, their_answers = os.pipe()
    # the browser reads commands from 3, and writes answers to 4
    shell = f'exec "$0" "$@" 3<&{their_end} 4>&{their_answers}'
    process = subprocess.Popen(
        ["/bin/bash", "-c", shell, program, *FLAGS, f"--user-data-dir={profile}"],
        pass_fds=(their_end, their_answers),
        stderr=subprocess.DEVNULL,
    )
    os.close(their_end)
    os.close(their_answers)
    try:
        yield Page(commands, answers)
    finally:
        process.kill()
        process.wait()
        os.close(commands)
        os.close(answers)
