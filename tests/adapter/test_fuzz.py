"""The running adapter under a fuzzer that reads its description."""

import subprocess
import sys

import pytest
from adapters import RunningAdapter

pytestmark = pytest.mark.servers


def test_no_request_makes_the_adapter_fail(tmp_path):
    with RunningAdapter(tmp_path) as adapter:
        command = [
            sys.executable,
            "-m",
            "schemathesis.cli",
            "run",
            f"{adapter.url}/openapi.json",
            "--checks",
            "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
            "--max-examples",
            "60",
            "--generation-deterministic",
            "--request-timeout",
            "5",
            "--exclude-path-regex",
            "^/streams/(Counts|Totals)$",
            "--suppress-health-check",
            "all",
            "--phases",
            "examples,coverage,fuzzing",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=tmp_path)
        assert done.returncode == 0, done.stdout[-4000:]
        assert adapter.get("/health").json() == {"status": "up"}
