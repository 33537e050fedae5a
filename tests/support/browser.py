"""Drive headless Chromium over its debugging pipe: open a page, evaluate JavaScript in it, take pictures."""

import base64
import json
import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

OPTIONS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --hide-scrollbars --remote-debugging-pipe"""


class Browser:
    """A browser with one page and its own profile."""

    def __init__(self, profile: Path) -> None:
        there, self._out = os.pipe()
        self._in, back = os.pipe()
        command = f'exec chromium "$@" 3<&{there} 4>&{back} 2> /dev/null'  # it reads from 3 and writes to 4
        arguments = ["bash", "-c", command, "chromium", *OPTIONS.split(), f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(arguments, pass_fds=(there, back), stdout=subprocess.DEVNULL)
        os.close(there)
        os.close(back)
        self._read, self._count, self._session = b"", 0, {}
        (page, *_) = [each for each in self._call("Target.getTargets")["targetInfos"] if each["type"] == "page"]
        attached = self._call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        self._call("Page.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._out)
        os.close(self._in)

    def open(self, page: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Open a file in a window of that size, and wait until it is loaded."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._call("Page.navigate", url=page.as_uri())
        while self._message().get("method") != "Page.loadEventFired":
            pass

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression, which may be a promise."""
        done = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def wait_for(self, script: str) -> Any:
        """Evaluate an expression until it is true, for ten seconds at most; return its last value."""
        again = f"if ((value = {script}) || Date.now() - start > 10000) resolve(value); else setTimeout(again, 50)"
        return self.evaluate(
            f"new Promise(resolve => {{ let value, start = Date.now(); (function again() {{ {again} }})() }})"
        )

    def picture(self, path: Path) -> None:
        """Write a PNG of what is visible."""
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot")["data"]))

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._count += 1
        message = {"id": self._count, "method": method, "params": params, **self._session}
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._message()).get("id") != self._count:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            more = os.read(self._in, 1 << 20)
            assert more, "chromium ended"
            self._read += more
        message, _, self._read = self._read.partition(b"\0")
        return json.loads(message)
