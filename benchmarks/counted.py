"""What an event costs in calls and in bytes: a count, not a time, so that it is the same on a busy machine.

    python benchmarks/counted.py [--root DIRECTORY] [--note]

Runs some applications in memory (TopologyDriver), with as many events and with twice as many. What the second half has cost,
divided by its events, is what an event costs: calls that Penstock's own code makes, of Python or C, and bytes that it sends
through hops. Prints JSON. ``--root`` counts another clone's Penstock, ``--note`` writes counted.json, which
tests/test_counted.py compares with.
"""

import argparse
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

HERE = Path(__file__).resolve().parent
NOTED = HERE / "counted.json"
KEYS = 500
COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>")
"""Functions of their own up to Python 3.11."""


def words(count: int) -> list[bytes]:
    """For a counter by key: many keys, a few events of each."""
    return [b'{"key":%d,"text":"%d"}' % (number % KEYS, number) for number in range(count)]


def digits(count: int) -> list[bytes]:
    """For the divisibility of numbers."""
    return [b'{"text":"%0100d"}' % (number * 7919) for number in range(count)]


def readings(count: int) -> list[bytes]:
    """For windows: ten events a second."""
    return [
        b'{"key":%d,"value":%d,"at":"2026-01-01T%02d:%02d:%02d.%dZ"}'
        % (number % 7, number, number // 36000, number // 600 % 60, number // 10 % 60, number % 10)
        for number in range(count)
    ]


WORKLOADS: dict[str, tuple[str, str, Callable[[int], list[bytes]], int]] = {
    "words, 4 keys": ("examples/divisibility/app.py", "RawWords", digits, 1000),
    "counter, 500 keys": ("benchmarks/apps/counter.py", "Words", words, 10_000),
    "batch dialect": ("benchmarks/apps/lengths.py", "Words", words, 10_000),
    "tumbling windows": ("benchmarks/apps/timed.py", "Words", readings, 5000),
}
"""By name: an application, its source, what goes in, and how many events the first half has."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=HERE.parent, help="the clone whose Penstock is counted")
    parser.add_argument("--note", action="store_true", help="write counted.json")
    options = parser.parse_args()
    sys.path.insert(0, str(options.root.resolve()))
    text = json.dumps({name: count(name, options.root.resolve()) for name in WORKLOADS}, indent=1)
    print(text)
    if options.note:
        NOTED.write_text(text + "\n")


def count(workload: str, root: Path = HERE.parent) -> dict[str, float]:
    """Calls and bytes of an event of a workload."""
    path, source, generate, events = WORKLOADS[workload]
    for number in (events // 10, 1):  # what is made at first use is there then
        _run(root / path, source, generate(number))
    once, twice = (_counted(root, root / path, source, generate(factor * events)) for factor in (1, 2))
    return {kind: round((twice[kind] - once[kind]) / events, 2) for kind in once}


def _counted(root: Path, path: Path, source: str, given: list[bytes]) -> dict[str, int]:
    """The calls and the bytes of a run."""
    calls = 0
    package, driver = str(root / "penstock"), str(root / "penstock" / "testing")
    own: dict[CodeType, bool] = {}

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        if event == "c_call":
            code = frame.f_code
        elif event == "call" and frame.f_back is not None and frame.f_code.co_name not in COMPREHENSIONS:
            code = frame.f_back.f_code
        else:
            return
        if code not in own:
            own[code] = code.co_filename.startswith(package) and not code.co_filename.startswith(driver)
        calls += own[code]

    sys.setprofile(profile)
    try:
        sent = _run(path, source, given)
    finally:
        sys.setprofile(None)
    return {"calls": calls, "bytes": sent}


def _run(path: Path, source: str, given: list[bytes]) -> int:
    """Run an application over one micro-batch; returns the bytes that have gone through hops."""
    from penstock.runtime.wire import Outbox
    from penstock.testing import TopologyDriver

    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    sent, take = 0, Outbox.take

    def weigh(self: Any) -> Any:
        nonlocal sent
        rows = take(self)
        sent += sum(map(len, rows["block"].to_pylist()))
        return rows

    with patch.object(Outbox, "take", weigh):
        TopologyDriver(module.app).batch({source: given})
    return sent


if __name__ == "__main__":
    main()
