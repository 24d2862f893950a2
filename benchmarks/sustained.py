"""The adapter under load for minutes: events a second, answers at half of that, with slow readers, and memory over time.

    python benchmarks/sustained.py [--seconds 180] [--output FILE.md]

The load comes from a process of its own; of two versions, run it from each one's checkout, in turn.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from penstock.bench.servers.process import free_port, kill, listens, spawn

ROOT = Path(__file__).parent.parent
LOADS = {"100 events a request, 16 connections": (16, 100), "1 event a request, 64 connections": (64, 1)}


def resident(process):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) >> 10


def measured(port, connections, events, seconds, rate=0.0):
    url = f"http://127.0.0.1:{port}/streams/Words"
    command = [sys.executable, ROOT / "benchmarks/load.py", url, "--seconds", str(seconds), "--rate", str(rate)]
    command += ["--connections", str(connections), "--events", str(events)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    lines = [
        f"{datetime.date.today()}, {os.cpu_count()} cores, {options.seconds:g} s each, measured:",
        "",
        "| load | events/s | p99 | p99 at half of that | the same beside 200 consumers that do not read | memory, first and "
        "last |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for load, (connections, events) in LOADS.items():
        with tempfile.TemporaryDirectory() as scratch:
            port = free_port()
            command = [sys.executable, "-m", "penstock", "adapter", ROOT / "tests/adapter/app.py"]
            process = spawn([*map(str, command), "--spool", f"{scratch}/spool", "--port", str(port)], Path(scratch) / "log")
            try:
                while not listens(port):
                    time.sleep(0.05)
                measured(port, connections, events, 3)
                first = resident(process)
                full = measured(port, connections, events, options.seconds)
                half = measured(port, connections, events, options.seconds, full["events_per_s"] / 2)
                slow = [sys.executable, ROOT / "tests/adapter/attacks.py", str(port), "unread_results", str(options.seconds)]
                with subprocess.Popen(slow, stdout=subprocess.DEVNULL):
                    beside = measured(port, connections, events, options.seconds / 2, full["events_per_s"] / 2)
                assert not full["failed"] + half["failed"] + beside["failed"]
                figures = [f"{full['events_per_s']:,.0f}", *(f"{one['p99_ms']:.1f} ms" for one in (full, half, beside))]
                lines.append("| " + " | ".join([load, *figures, f"{first}, {resident(process)} MB"]) + " |")
                print(lines[-1], file=sys.stderr, flush=True)
            finally:
                kill(process)
    print("\n".join(lines))
    if options.output:
        options.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
