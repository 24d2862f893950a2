"""Real adapters, brokers and database servers for tests."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx

from penstock.bench.servers.process import free_port, listens

APP = Path(__file__).parent / "adapter" / "app.py"


class RunningAdapter:
    """A `penstock adapter` process; used as a context, it is killed at the end."""

    def __init__(self, spool, *arguments, app=APP, scheme="http"):
        self.port, self.spool = free_port(), spool
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self._command = [sys.executable, "-m", "penstock", "adapter", str(app), "--spool", str(spool)]
        self._command += ["--port", str(self.port), *map(str, arguments)]
        self.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def start(self):
        self.process = subprocess.Popen(self._command, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 30
        while not listens(self.port):
            assert self.process.poll() is None, self.process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def kill(self):
        if self.process.returncode is None:
            self.process.kill()
            self.process.communicate()

    def stop(self, number=signal.SIGTERM):
        """Stop it as a person would; returns its exit code and what it said."""
        self.process.send_signal(number)
        said = self.process.communicate(timeout=30)[1]
        return self.process.returncode, said

    def post(self, content, stream="Words", **options):
        return httpx.post(f"{self.url}/streams/{stream}", content=content, timeout=60, **options)

    def get(self, path, **options):
        return httpx.get(f"{self.url}{path}", timeout=60, **options)


def required(condition, reason):
    """Skip a test, loudly, where something is missing; in CI that is a failure."""
    import pytest

    if not condition:
        if os.environ.get("CI"):
            pytest.fail(f"CI must have this: {reason}")
        pytest.skip(f"NOT TESTED: {reason}")
