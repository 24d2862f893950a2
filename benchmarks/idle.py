"""What a run uses while nothing comes: a share of a core, and bytes that it writes.

    python benchmarks/idle.py [--minutes 10] [--master local[2]] [--option=--OPTION=VALUE ...]

A run with a counter by key reads one small file, and then there is no more. A minute later its processes' seconds of processor
and the files of its directory are read, and once more at the end.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE / "peers"))

from tree import Tree  # noqa: E402

SETTLED_S = 60.0
PATIENCE_S = 120.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--option", action="append", default=[], help="one more option of penstock run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        (place / "in").mkdir()
        (place / "in" / "words.jsonl").write_text('{"key": 1, "text": "1"}\n{"key": 2, "text": "2"}\n')
        command = [
            sys.executable,
            "-m",
            "penstock",
            "run",
            str(HERE / "apps" / "counter.py"),
            "--name",
            "idle",
            "--runs",
            str(place),
            "--master",
            options.master,
            "--source",
            f"Words=jsonl:{place / 'in'}",
            *options.option,
        ]
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            await_commit(running, place / "idle")
            tree = Tree(running.pid)
            time.sleep(SETTLED_S)
            used, files, began = tree.processor_seconds, files_of(place / "idle"), time.monotonic()
            time.sleep(60 * options.minutes)
            spent, lasted = tree.processor_seconds - used, time.monotonic() - began
            changed = {path: size for path, (size, when) in files_of(place / "idle").items() if files.get(path) != (size, when)}
        finally:
            running.send_signal(signal.SIGINT)
            running.wait()
    print(f"{100 * spent / lasted:.2f}% of a core over {lasted / 60:.0f} minutes; {len(changed)} files changed")
    for path, size in sorted(changed.items()):
        print(f"    {path}: {size - files.get(path, (0, 0.0))[0]:+,} bytes")


def await_commit(running: "subprocess.Popen[bytes]", run: Path) -> None:
    """Wait for the first committed micro-batch.

    Raises:
        TimeoutError: there is none.
    """
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and running.poll() is None:
        if list(run.glob("checkpoint/*/commits/0")):
            return
        time.sleep(0.5)
    raise TimeoutError(f"The run has committed nothing; {run} says why.")


def files_of(run: Path) -> dict[str, tuple[int, float]]:
    """Size and time of each file of a run."""
    found = {}
    for path in run.rglob("*"):
        if path.is_file():
            state = path.stat()
            found[str(path.relative_to(run))] = (state.st_size, state.st_mtime)
    return found


if __name__ == "__main__":
    main()
