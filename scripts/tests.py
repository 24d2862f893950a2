"""Run the tests: those that share a Spark in one process, the others beside them. What the others say is shown last.

Usage: tests.py [--servers] [PYTEST'S OPTIONS ...]; with --servers those that need servers or long, else the others.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

arguments = [argument for argument in sys.argv[1:] if argument != "--servers"]
WANTED = "servers or slow" if "--servers" in sys.argv else "not servers and not slow"
OF_THEIR_OWN = {"test_stores.py", "test_taking_over.py", "test_yarn.py"}
"""Which start each Spark that they need themselves, and so may run beside the others: both halves take as long then."""
ON_SPARK = [str(path) for path in sorted(Path("tests/engine").glob("test_*.py")) if path.name not in OF_THEIR_OWN]
ON_SPARK += [
    "tests/test_topologies.py",
    "tests/test_examples.py",
    *map(str, sorted(Path("tests/kinds").glob("test_*_on_spark.py"))),
]
PYTEST = [sys.executable, "-m", "pytest", "-m", WANTED, *arguments]

with tempfile.TemporaryFile("w+") as said:
    others = [*PYTEST, *(f"--ignore={path}" for path in ON_SPARK)]
    with subprocess.Popen(others, stdout=said) as rest:
        spark = subprocess.run([*PYTEST, *ON_SPARK])
        rest.wait()
    said.seek(0)
    print(said.read())
NONE = 5  # pytest's code where nothing was selected
codes = {spark.returncode, rest.returncode}
sys.exit(codes == {NONE} or not codes <= {0, NONE})
