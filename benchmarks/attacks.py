"""What each attack of `tests/adapter/attacks.py` takes: the adapter's memory, and the time of honest clients.

    python benchmarks/attacks.py [--seconds 10] [--output FILE.md] [ATTACK ...]

One adapter with its defaults; the attack and the honest clients (four, each with one event each 10 ms) are processes
of their own on the same machine, so that what an attack takes of the processor is in the times as well.
"""

import argparse
import datetime
import http.client
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from penstock.bench.servers.process import free_port, kill, listens, spawn

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests/adapter"))
from attacks import ATTACKS, web_socket  # noqa: E402

CLIENTS, PAUSE_S = 4, 0.01


class Honest(threading.Thread):
    """A client that sends an event, and again a moment after it is answered."""

    def __init__(self, port, until):
        super().__init__()
        self._port, self._until = port, until
        self.times, self.refused = [], 0

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        while time.monotonic() < self._until:
            began = time.monotonic()
            connection.request("POST", "/streams/Words", '{"text":"honest"}', {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            self.refused += answer.status == 503
            self.times.append(time.monotonic() - began)
            time.sleep(PAUSE_S)


def honest(port, seconds):
    clients = [Honest(port, time.monotonic() + seconds) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    times = np.concatenate([client.times for client in clients])
    return np.percentile(times, 99) * 1e3, times.max() * 1e3, len(times), sum(client.refused for client in clients)


def memory(process):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) >> 10


def idle(port, process, seconds):
    """The share of a core that 500 consumers and 500 producers take that say nothing, each on a WebSocket."""
    paths = ["/streams/Counts?offset=latest", "/streams/Words"] * 500
    connections = [web_socket(port, path) for path in paths]
    time.sleep(2)
    before, began = processor(process), time.monotonic()
    time.sleep(seconds)
    share = (processor(process) - before) / (time.monotonic() - began)
    for connection in connections:
        connection.close()
    return share


def processor(process):
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attacks", nargs="*", choices=[*ATTACKS, []])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    rows = []
    for name in options.attacks or ATTACKS:
        with tempfile.TemporaryDirectory() as scratch:
            port = free_port()
            command = [sys.executable, "-m", "penstock", "adapter", ROOT / "tests/adapter/app.py"]
            command += ["--spool", f"{scratch}/spool", "--port", port]
            process = spawn([*map(str, command)], Path(scratch) / "log")
            try:
                while not listens(port):
                    time.sleep(0.05)
                if not rows:
                    share = idle(port, process, options.seconds)
                honest(port, 1)
                before, _, _, _ = honest(port, options.seconds / 2)
                script = [sys.executable, ROOT / "tests/adapter/attacks.py", str(port), name, str(options.seconds)]
                with subprocess.Popen(script, stdout=subprocess.DEVNULL):
                    time.sleep(0.5)
                    during, longest, count, refused = honest(port, options.seconds)
                row = [name.replace("_", " "), f"{memory(process)} MB", f"{before:.1f} ms", f"{during:.1f} ms"]
                row += [f"{during / before:.1f}", f"{longest:.0f} ms", f"{refused} of {count}"]
                rows.append(row)
                print(*row, sep=" | ", file=sys.stderr, flush=True)
            finally:
                kill(process)
    lines = [
        f"{datetime.date.today()}, {os.cpu_count()} cores, {options.seconds:g} s each, measured:",
        "",
        "| attack | memory at most | honest p99 before | during | ratio | longest | refused (503) |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
        f"1,000 WebSockets that say nothing, half of them consumers, take {share:.1%} of a core (measured).",
    ]
    print("\n".join(lines))
    if options.output:
        options.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
