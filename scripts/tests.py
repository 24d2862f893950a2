"""Run the tests: those that share a Spark in one process, the others beside them. What the others say is shown last.

Usage: tests.py [--servers] [PYTEST'S OPTIONS ...]; with --servers those that need servers or long, else the others.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from spark_tests import ON_SPARK

arguments = [argument for argument in sys.argv[1:] if argument != "--servers"]
WANTED = "servers or slow" if "--servers" in sys.argv else "not servers and not slow"
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
