"""A headless Chromium, driven over the pipe of its DevTools protocol with the standard library."""

import base64
import contextlib
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    *("--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"),
    *("--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking"),
    *("--disable-extensions", "--disable-sync", "--hide-scrollbars"),
)
# The browser reads its commands at 3 and writes at 4; these are taken in this process.
LAUNCH = """
import os, sys
commands, answers = (os.dup(int(number)) for number in sys.argv[1:3])
spare = [os.dup(fd) for fd in (commands, answers)]
for target, fd in zip((3, 4), spare):
    os.dup2(fd, target)
os.execv(sys.argv[3], sys.argv[3:])
"""
SECONDS = 60


def find_browser() -> str | None:
    """Returns the path of a Chromium, if there is one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """One page of a browser; keeps what it logged and asked for."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._unread, self._number, self._session = b"", 0, None
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: object) -> dict:
        """Runs one command of the protocol; returns its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            received = self._read()
            if received.get("id") == self._number:
                assert "error" not in received, received
                return received["result"]

    def _read(self) -> dict:
        while b"\0" not in self._unread:
            assert select.select([self._answers], [], [], SECONDS)[0], "the browser is silent"
            part = os.read(self._answers, 1 << 20)
            assert part, "the browser has ended"
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\0")
        message = json.loads(line)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, event: str | None, values: dict) -> None:
        if event == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])
        elif event == "Runtime.exceptionThrown":
            self.complaints.append(str(values["exceptionDetails"]))
        elif event == "Runtime.consoleAPICalled":
            self.complaints.append(str(values["args"]))
        elif event == "Log.entryAdded":
            self.complaints.append(str(values["entry"]))
        elif event == "Page.javascriptDialogOpening":
            self.complaints.append(f"dialog: {values['message']}")

    def open(self, url: str) -> None:
        """Opens an address and waits until the page says that it is ready."""
        self.call("Page.navigate", url=url)
        self.wait_for(f"location.href === {json.dumps(url)} && document.body?.dataset.ready")

    def evaluate(self, script: str) -> object:
        """Returns the value of an expression of JavaScript."""
        done = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def wait_for(self, script: str) -> None:
        """Waits until an expression is true."""
        end = time.monotonic() + SECONDS
        while not self.evaluate(script):
            assert time.monotonic() < end, f"never true: {script}"
            time.sleep(0.05)

    def press(self, key: str, code: int, control: bool = False) -> None:
        """Presses and releases a key."""
        values = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, modifiers=2 * control, **values)

    def photograph(self, path: pathlib.Path) -> None:
        """Writes the whole page as PNG."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextlib.contextmanager
def open_page(browser: str, folder: pathlib.Path) -> Iterator[Page]:
    """Starts a browser with a profile of its own in a new folder; ends it afterwards."""
    commands_read, commands = os.pipe()
    answers, answers_write = os.pipe()
    given = [str(commands_read), str(answers_write)]
    process = subprocess.Popen(
        [
            sys.executable,
            "-S",
            "-c",
            LAUNCH,
            *given,
            browser,
            *OPTIONS,
            f"--user-data-dir={folder}",
        ],
        pass_fds=(commands_read, answers_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(commands_read)
    os.close(answers_write)
    try:
        yield Page(commands, answers)
    finally:
        os.close(commands)  # The browser ends when its commands do.
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(answers)
