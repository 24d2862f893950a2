"""A micro-batch that is committed while the driver stops its query, and cannot be delivered, is not forgotten."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent


@pytest.mark.parametrize("moment", ["end", "change"])
def test_a_delivery_that_fails_while_the_query_is_stopped_is_made_up_for(tmp_path, moment):
    command = [sys.executable, "-m", "crashpoints.stopped", str(tmp_path), moment]
    environment = {**os.environ, "PYTHONPATH": f"{TESTS.parent}{os.pathsep}{TESTS}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=True)
    failure, after = done.stdout.splitlines()
    assert "the sink does not answer" in failure
    assert json.loads(after) == [[0, 1, 2, 10, 11, 12], 0]
