"""What the page of `penstock ui` costs who serves it and who looks at it: a run of a hundred elements, watched for an hour.

    python benchmarks/page.py [--directory build/page] [--minutes 60] [--axe axe.min.js]

A run of `apps/wide.py` is recorded on Spark for two minutes, and then played over and over, a micro-batch every two seconds,
into a directory that one `penstock ui` serves to one Chromium. Prints the server's share of a core, and of the page its size,
first paint and memory; with axe-core's script also what that finds wrong. Needs Chromium.
"""

import argparse
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from penstock.bench.servers.process import free_port

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from browsers import Browser  # noqa: E402

EVERY_S = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=HERE.parent / "build" / "page")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--axe", type=Path)
    parser.add_argument("--begun", type=int, default=20, help="Micro-batches that are there at first.")
    options = parser.parse_args()
    place = options.directory.absolute()
    recorded = place / "recorded" / "wide"
    if not (recorded / "report.json").exists():
        record(place / "recorded")
    shutil.rmtree(place / "played", ignore_errors=True)
    player = Player(recorded, place / "played" / "wide", options.begun)
    player.start()
    port = free_port()
    command = [sys.executable, "-m", "penstock", "ui", str(place / "played"), "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        watch(f"http://127.0.0.1:{port}/runs/wide", server.pid, options.minutes, options.axe)
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(20)
        player.stop()


def record(runs: Path) -> None:
    """A real run, two minutes long."""
    command = [
        sys.executable,
        "-m",
        "penstock",
        "run",
        str(HERE / "apps" / "wide.py"),
        "--name",
        "wide",
        "--runs",
        str(runs),
        "--fresh",
        "--source",
        "Readings=generator:poisson?rate=200",
        "--trigger",
        f"{EVERY_S:g} s",
        "--duration",
        "150 s",
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


class Player:
    """Writes the micro-batches of a recorded run anew, as if they came now, into a directory that looks like a run that is
    on.
    """

    def __init__(self, recorded: Path, played: Path, begun_with: int = 20) -> None:
        ignored = shutil.ignore_patterns("checkpoint*", "output", "*.jsonl", "report.json")
        shutil.copytree(recorded, played, ignore=ignored)
        shutil.copy(recorded / "starts.jsonl", played)
        self._played, self._over, self._begun = played, threading.Event(), begun_with
        self._batches = _lines(recorded / "batches-main.jsonl")[5:]
        progress = {one["batchId"]: one for one in _lines(recorded / "progress.jsonl") if one.get("numInputRows")}
        self._batches = [one for one in self._batches if one["batch"] in progress]
        self._progress = [progress[one["batch"]] for one in self._batches]
        self._lock = (played / "spark.log").open("ab")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._thread = threading.Thread(target=self._play, daemon=True)

    def start(self) -> None:
        for number in range(self._begun):
            self._add(number, time.time() - (self._begun - number) * EVERY_S)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        self._lock.close()

    def _play(self) -> None:
        number = self._begun
        while not self._over.wait(EVERY_S):
            self._add(number, time.time())
            number += 1

    def _add(self, number: int, now: float) -> None:
        place = number % len(self._batches)
        batch, told = self._batches[place], self._progress[place]
        past = timedelta(seconds=now - batch["committed_us"] / 1e6)
        at = datetime.fromisoformat(told["timestamp"].replace("Z", "+00:00")) + past
        told = told | {"batchId": number, "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z")}
        batch = batch | {"batch": number, "committed_us": int(now * 1e6)}
        for name, line in (("batches-main", batch), ("progress", told)):
            with (self._played / f"{name}.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")


def watch(address: str, pid: int, minutes: float, axe: Path | None) -> None:
    """Look at the page for so long, and print what that costs."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            size = len(httpx.get(address, timeout=30).content)
            break
        except httpx.TransportError:
            time.sleep(0.2)
    with Browser() as browser:
        browser.open(address)
        browser.until("performance.getEntriesByName('first-contentful-paint').length")
        paint = browser.get("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        browser.until("stops && document.querySelector('#curve path')", 120)
        print(f"size {size / 1e3:.0f} kB, first paint {paint:.0f} ms", flush=True)
        print(
            "| minutes | of a core | JavaScript memory | nodes | micro-batches |\n| --- | --- | --- | --- | --- |", flush=True
        )
        began, first, worked = time.monotonic(), time.monotonic(), processor(pid)
        while time.monotonic() - began < 60 * minutes:
            until = time.monotonic() + min(600.0, 60 * minutes)
            while time.monotonic() < until:
                time.sleep(2)
                browser.get("0")  # so that what the browser says of the page's requests is read
            share = (processor(pid) - worked) / (time.monotonic() - first)
            first, worked = time.monotonic(), processor(pid)
            browser.send("HeapProfiler.collectGarbage")
            memory, nodes, batches = browser.get(
                "[performance.memory.usedJSHeapSize, document.querySelectorAll('*').length, now.batches]"
            )
            past = (time.monotonic() - began) / 60
            print(f"| {past:.0f} | {share:.2%} | {memory / 1e6:.1f} MB | {nodes} | {batches} |", flush=True)
        if axe is not None:
            browser.get(axe.read_text() + "; 0")
            found: Any = browser.get("axe.run().then((found) => found.violations.map((one) => one.id + ': ' + one.help))")
            print(f"axe-core: {'; '.join(found) or 'no violation'}")


def processor(pid: int) -> float:
    """Seconds of a processor that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


if __name__ == "__main__":
    main()
