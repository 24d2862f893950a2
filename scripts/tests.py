"""Run every test: those of the engine, and beside them the rest, which takes as long. What the rest says is shown last."""

import subprocess
import sys
import tempfile

PYTEST, ENGINE = [sys.executable, "-m", "pytest"], "tests/engine"

with tempfile.TemporaryFile("w+") as said, subprocess.Popen([*PYTEST, "--ignore", ENGINE], stdout=said) as rest:
    engine = subprocess.run([*PYTEST, ENGINE])
    rest.wait()
    said.seek(0)
    print(said.read())
sys.exit(bool(engine.returncode or rest.returncode))
