"""Run every test: those that start Spark one after the other, the rest beside them. What the rest says is shown last."""

import subprocess
import sys
import tempfile

PYTEST = [sys.executable, "-m", "pytest", "-m"]

with tempfile.TemporaryFile("w+") as said, subprocess.Popen([*PYTEST, "not spark"], stdout=said) as rest:
    spark = subprocess.run([*PYTEST, "spark"])
    rest.wait()
    said.seek(0)
    print(said.read())
sys.exit(bool(spark.returncode or rest.returncode))
