"""A real Chromium, asked over its DevTools protocol: open a page, evaluate, press keys, take pictures."""

import base64
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from websockets.sync.client import connect

NAMES = ("chromium", "chromium-browser", "google-chrome")


def found():
    """The browser's command, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """A browser with one page; a context manager."""

    def __init__(self, width=1440, height=1000, dark=False):
        self._size, self._dark = (width, height), dark

    def __enter__(self):
        self._home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        command = [
            found(),
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--remote-debugging-port=0",
            f"--user-data-dir={self._home.name}",
            "about:blank",
        ]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        active = Path(self._home.name) / "DevToolsActivePort"
        while not active.exists() or len(active.read_text().splitlines()) < 2:
            time.sleep(0.05)
        port, path = active.read_text().splitlines()
        self._opened = connect(f"ws://127.0.0.1:{port}{path}", max_size=None)
        self._socket = self._opened.__enter__()
        self._number, self._session, self.requests = 0, None, []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.send("Network.enable")
        width, height = self._size
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if self._dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        return self

    def __exit__(self, *_):
        self._opened.__exit__(None, None, None)
        self._process.kill()
        self._process.wait()
        self._home.cleanup()

    def send(self, method, **parameters):
        """Ask for something, and wait for the answer; what happens meanwhile is noted."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._socket.send(json.dumps(message))
        while True:
            answer = json.loads(self._socket.recv(timeout=60))
            if answer.get("method") == "Network.requestWillBeSent":
                self.requests.append(answer["params"]["request"]["url"])
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(answer["error"])
                return answer["result"]

    def open(self, url):
        """Open a page, and wait until it is drawn."""
        self.send("Page.enable")
        self.send("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def get(self, expression):
        """The value of an expression in the page."""
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"])
        return result["result"].get("value")

    def until(self, expression, seconds=30.0):
        """Wait until an expression holds."""
        end = time.monotonic() + seconds
        while not self.get(f"Boolean({expression})"):
            if time.monotonic() > end:
                raise TimeoutError(f"never: {expression}; the page says {self.get('document.body.innerText')[:500]}")
            time.sleep(0.1)

    def press(self, key):
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            self.send(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode={"Enter": 13, "Tab": 9}.get(key, 0),
            )

    def picture(self, path):
        """The whole page as a picture."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        content = self.send("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"]
        Path(path).write_bytes(base64.b64decode(content))
