"""What measuring costs: the loop that times elements against a plain one, as a share of handling an event.

    python benchmarks/measuring.py

Runs the counter of benchmarks/apps in memory, both ways in turn, and prints the medians.
"""

import statistics
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from penstock.app.loader import load_app  # noqa: E402
from penstock.runtime.tally import ElementTally  # noqa: E402
from penstock.testing import TopologyDriver  # noqa: E402

EVENTS, ROUNDS = 100_000, 9


def plain(self: ElementTally, items):
    """The loop without a clock."""
    self.events += len(items)
    return iter(items)


def main() -> None:
    app, _ = load_app(HERE / "apps" / "counter.py")
    driver = TopologyDriver(app, partitions=1)
    batch = {"Words": [b'{"key":%d,"text":"%s"}' % (number % 1000, b"1" * 100) for number in range(EVENTS)]}
    timed = ElementTally.timed
    seconds: dict[str, list[float]] = {"timed": [], "plain": []}
    driver.batch(batch)
    for _ in range(ROUNDS):
        for name, loop in (("timed", timed), ("plain", plain)):
            ElementTally.timed = loop  # type: ignore[method-assign]
            began = time.perf_counter()
            driver.batch(batch)
            seconds[name].append(time.perf_counter() - began)
    medians = {name: statistics.median(values) * 1e6 / EVENTS for name, values in seconds.items()}
    share = medians["timed"] / medians["plain"] - 1
    print(f"timed {medians['timed']:.3f} us an event, plain {medians['plain']:.3f} us: measuring costs {share:+.1%}")


if __name__ == "__main__":
    main()
