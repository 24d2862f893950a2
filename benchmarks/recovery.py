"""Is the time to recover as predicted? Kills a run, starts it again after a while, and steps the rate of another.

    python benchmarks/recovery.py [--directory build/recovery] [--outage 60]

An application of Penstock with a keyed Python element reads from the generator, whose schedule goes on while the run is
dead. It is calibrated on two short runs. Then it is killed (kill -9) at 50% and at 80% of its predicted limit and started
again; and run on a recorded schedule whose rate steps up to 1.5 times. The outage lasts until the first trigger of the
new start, which the prediction is told. Results are kept, so that an interrupted benchmark goes on where it was.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from penstock.planner import Setting, calibrate, observe, recover
from penstock.planner.reading import find
from penstock.runs.batches import BatchRecord

HERE = Path(__file__).parent


APP, ROUNDS = HERE / "apps" / "keyed.py", 1200
STEADY_S = 70.0


class Run:
    """``penstock run`` in a process group of its own."""

    def __init__(self, directory: Path, name: str, source: str, trigger: float) -> None:
        self.directory = directory / name
        self._command = [
            sys.executable,
            "-m",
            "penstock",
            "run",
            str(APP),
            "--rounds",
            str(ROUNDS),
            "--source",
            f"Readings={source}",
            "--trigger",
            f"{trigger} s",
            "--name",
            name,
            "--runs",
            str(directory),
            "--master",
            "local[2]",
        ]

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def end(self, number: int = signal.SIGTERM) -> None:
        os.killpg(self._process.pid, number)
        self._process.wait()

    def batches(self) -> list[BatchRecord]:
        path = self.directory / "batches-main.jsonl"
        lines = path.read_bytes().splitlines() if path.exists() else []
        found = []
        for line in lines:
            try:
                found.append(msgspec.json.decode(line, type=BatchRecord))
            except msgspec.DecodeError:
                continue
        return [record for record in found if record.latency_ms.counts]

    def await_batches(self, seconds: float) -> None:
        """Until so long after the first commit."""
        while not self.batches():
            time.sleep(0.5)
        time.sleep(max(0.0, self.batches()[0].committed_us / 1e6 + seconds - time.time()))


def recorded(directory: Path, name: str, rate: float, trigger: float, seconds: float = STEADY_S) -> Path:
    """A recording of a steady run."""
    run = Run(directory, name, f"generator:poisson?rate={rate:g}&seed=3", trigger)
    if not (directory / f"{name}.done").exists():
        run.start()
        run.await_batches(seconds)
        run.end()
        (directory / f"{name}.done").touch()
    return run.directory


def settled(records: list[BatchRecord], since: float, usual: float) -> float:
    """Seconds from ``since`` until a micro-batch, and the next, have a mean latency of no more than usual."""
    later = [record for record in records if record.committed_us / 1e6 > since]
    fine = [(record.latency_ms.mean or 0.0) / 1e3 <= usual for record in later]
    for place, record in enumerate(later):
        if fine[place] and all(fine[place + 1 : place + 2]):
            return record.committed_us / 1e6 - since
    return float("nan")


def p95_of(records: list[BatchRecord]) -> float:
    total = records[0].latency_ms.__class__()
    for record in records:
        total.merge(record.latency_ms)
    return (total.quantile(0.95) or 0.0) / 1e3


def outage(directory: Path, calibration: Any, share: float, seconds: float) -> dict[str, Any]:
    """Kill a run at a share of its limit, start it again, and see when all is as before."""
    rate = round(share * calibration.throughput_limit())
    name = f"outage-{round(share * 100)}"
    run = Run(directory, name, f"generator:poisson?rate={rate}&seed=5", 1.0)
    run.start()
    run.await_batches(STEADY_S)
    steady = [one for one in run.batches() if one.committed_us / 1e6 > time.time() - STEADY_S + 25]
    run.end(signal.SIGKILL)
    killed, usual, before = time.time(), p95_of(steady), len(run.batches())
    time.sleep(seconds)
    run.start()
    deadline = time.time() + 400
    while time.time() < deadline:
        time.sleep(2)
        if not np.isnan(settled(run.batches()[before:], killed, usual)):
            break
    time.sleep(10)
    run.end()
    records = find(run.directory).records
    first = min(one.started for one in records if one.started > killed)
    took = settled(run.batches()[before:], first, usual)
    case = f"outage of {first - killed:.0f} s at {share:.0%} load"
    return {"case": case, "rate": rate, "outage": first - killed, "measured": took}


def step(directory: Path, calibration: Any, share: float, factor: float) -> dict[str, Any]:
    """Step the rate up, and see when the latency has settled at its new level."""
    rate = round(share * calibration.throughput_limit())
    random = np.random.default_rng(11)
    before = np.cumsum(random.exponential(1 / rate, int(rate * 100)))
    after = before[-1] + np.cumsum(random.exponential(1 / (rate * factor), int(rate * factor * 100)))
    times = directory / "step.txt"
    np.savetxt(times, np.concatenate([before, after]), "%.6f")
    run = Run(directory, "step", f"generator:recorded?times={times}", 1.0)
    run.start()
    run.await_batches(185.0)
    run.end()
    offsets = json.loads((run.directory / "progress.jsonl").read_text().splitlines()[3])["sources"][0]["endOffset"]
    at = offsets["started"] + float(before[-1])
    last = [one for one in run.batches() if one.committed_us / 1e6 > at + 50]
    took = settled(run.batches(), at, p95_of(last))
    return {"case": f"step of {factor:g} from {share:.0%} load", "rate": rate, "step": factor, "measured": took}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=HERE.parent / "build" / "recovery")
    parser.add_argument("--outage", type=float, default=60.0)
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    slow = recorded(options.directory, "calibration-1", 300, 0.0)
    fast = recorded(options.directory, "calibration-2", 900, 3.0)
    calibration = calibrate(observe(slow, fast))
    print(f"limit {calibration.throughput_limit():,.0f} rows/s (predicted)", flush=True)
    cases = {
        "outage-50": lambda: outage(options.directory, calibration, 0.5, options.outage),
        "outage-80": lambda: outage(options.directory, calibration, 0.8, options.outage),
        "step": lambda: step(options.directory, calibration, 0.5, 1.5),
    }
    print("| case | rows/s | measured | predicted (90% of the replicates) | error |\n| --- | --- | --- | --- | --- |")
    for name, measure in cases.items():
        path = options.directory / f"{name}.json"
        if not path.exists():
            path.write_text(json.dumps(measure()))
        one = json.loads(path.read_text())
        asked = {key: one[key] for key in ("outage", "step") if key in one}
        found = recover(calibration, Setting(rate=one["rate"], trigger=1), **asked)
        print(
            f"| {one['case']} | {one['rate']:,} | {one['measured']:.1f} s | {found.seconds:.1f} s ({found.low:.1f} to "
            f"{found.high:.1f}) | {found.seconds / one['measured'] - 1:+.0%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
