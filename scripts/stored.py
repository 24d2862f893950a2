"""Keep runs of this version that the next ones must be able to go on with: python scripts/stored.py [NAME ...]

Each is begun on Spark, and its driver is killed within its second commit; see tests/stored.
"""

import fcntl
import shutil
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "stored"))
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT))

import pyspark
from crashpoints.on_spark import Step, started
from crashpoints.runner import Place
from stored_runs import NAMES, UNPACKED, pack, workload_of

import penstock


def wait_for_the_end(log: Path) -> None:
    """Spark's own processes notice a little later that their driver has gone."""
    with log.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
    time.sleep(1)


def main() -> None:
    """Keep all of them, or those that are named."""
    version = f"{penstock.__version__}-spark-{pyspark.__version__}"
    for name in sys.argv[1:] or NAMES:
        workload = workload_of(name)
        shutil.rmtree(UNPACKED / name, ignore_errors=True)
        place = Place(UNPACKED / name)
        place.anew(workload)
        assert started(workload, place.world, Step(f"sync runs/run/batches-{workload.ledger}.jsonl", 1)) is None, (
            f"{name} was not killed"
        )
        wait_for_the_end(place.world / "runs" / "run" / "spark.log")
        archive = pack(name, version)
        print(f"{archive.relative_to(ROOT)}: {archive.stat().st_size / 1024:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
