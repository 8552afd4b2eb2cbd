"""Headless Chromium over the DevTools protocol, through a pipe: no port, no other package."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find() -> str | None:
    """The program, by the variable TOREQPROP_CHROMIUM or on the search path."""
    named = os.environ.get("TOREQPROP_CHROMIUM")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


def brightness(colour: str) -> float:
    """Of ``rgb(r, g, b)``, from 0 to 255."""
    red, green, blue = (float(p) for p in colour[colour.index("(") + 1 : -1].split(",")[:3])
    return 0.299 * red + 0.587 * green + 0.114 * blue


class Browser:
    """One page in a browser of its own; every answer is waited for, without a clock."""

    def __init__(self, program: str, profile: Path) -> None:
        command = [
            program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            "--disable-dev-shm-usage", "--disable-background-networking", "--no-first-run",
            "--disable-component-update", "--disable-sync", "--disable-quic",
            "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank",
        ]  # fmt: skip
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()

        # The browser reads commands from 3 and writes answers to 4.
        def place() -> None:
            one, two = os.dup(to_read), os.dup(to_write)
            os.dup2(one, 3)
            os.dup2(two, 4)

        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=False,
            preexec_fn=place,
        )
        os.close(to_read)
        os.close(to_write)
        self._rest, self._last = b"", 0
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None
        targets = self.ask("Target.getTargets")["targetInfos"]
        page = next(t for t in targets if t["type"] == "page")
        attached = self.ask("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")
        self.ask("Page.setLifecycleEventsEnabled", enabled=True)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._write)
        os.close(self._read)

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """A command's answer; what happens meanwhile goes to `events`."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._last:
                if "error" in found:
                    raise AssertionError(f"{method}: {found['error']}")
                return found["result"]
            self.events.append(found)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._read, 1 << 16)
            if not part:
                raise AssertionError("the browser ended")
            self._rest += part
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)

    def show(
        self,
        url: str,
        width: int = 1280,
        height: int = 900,
        *,
        dark: bool = False,
        still: bool = True,
    ) -> None:
        """Load a page at a width, in a colour scheme; ``still`` asks for reduced motion."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if still else "no-preference"},
        ]
        self.ask("Emulation.setEmulatedMedia", features=features)
        # A change of the fragment alone would not load the page anew.
        self.ask("Page.navigate", url="about:blank")
        self.events.clear()
        loader = self.ask("Page.navigate", url=url)["loaderId"]

        def loaded(event: dict[str, Any]) -> bool:
            about = event.get("params", {})
            return about.get("name") == "load" and about.get("loaderId") == loader

        while not any(map(loaded, self.events)):
            self.events.append(self._next())

    def run(self, expression: str) -> Any:
        """The value of an expression in the page; a promise is awaited."""
        found = self.ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise AssertionError(found["exceptionDetails"]["exception"].get("description", found))
        return found["result"].get("value")

    def press(self, key: str) -> None:
        """A key, down and up, wherever the focus is."""
        code = {"Tab": 9, "Enter": 13, " ": 32, "End": 35, "Home": 36, "ArrowLeft": 37,
                "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Backspace": 8}[key]  # fmt: skip
        text = {"Enter": "\r", " ": " "}.get(key)
        about = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": code}
        extra = {"text": text} if text else {}
        self.ask(
            "Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **about, **extra
        )
        self.ask("Input.dispatchKeyEvent", type="keyUp", **about)

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """A screenshot."""
        found = self.ask("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))
