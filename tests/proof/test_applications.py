"""The prover on applications that were written before it, by somebody who had not seen it: faulty ones, and sound ones that
look so.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
EXPECTED = json.loads((HERE / "expected.json").read_text())
REFUSED = "faulty/f25_basket"
"""Its state would be another after the first micro-batch: since 2026-11-29 its events become dead letters at once."""
FAULTY = {name: each for name, each in EXPECTED.items() if "cause" in each and name != REFUSED}
SOUND = [name for name in EXPECTED if name not in FAULTY and name != REFUSED]
SOON = {"faulty/f01_invoice_ids"}
"""Those that are tried before each commit."""


def marked(names):
    return [pytest.param(name, marks=() if name in SOON else pytest.mark.slow) for name in names]


def prove(name, *options):
    file = HERE / f"{name}.py"
    samples = sorted(file.parent.glob(f"{file.stem}.*jsonl"))
    given = [sample.name.removeprefix(f"{file.stem}.").removesuffix("jsonl").rstrip(".") for sample in samples]
    words = [
        f"--sample={source}={sample}" if source else f"--sample={sample}" for source, sample in zip(given, samples, strict=True)
    ]
    patient = ["--seconds", "300"]  # so that what is found does not depend on what else the machine does
    command = [sys.executable, "-m", "penstock", "prove", str(file), *words, "--json", *patient, *options]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode in (0, 1), ended.stderr
    return ended.returncode, json.loads(ended.stdout)


@pytest.mark.parametrize("name", marked(FAULTY))
def test_a_fault_is_found_with_its_cause(name):
    code, proof = prove(name)
    wanted = FAULTY[name]
    assert code == 1
    first = proof["findings"][0]
    assert first["cause"] in (wanted["cause"], *wanted["also_acceptable"])
    assert first["element"] == wanted["element"]
    if first["example"] is not None:
        assert sum(map(len, first["example"]["events"].values())) <= 12


@pytest.mark.slow
def test_a_fault_that_a_run_refuses_is_noted():
    code, proof = prove(REFUSED)
    assert (code, proof["findings"]) == (0, [])
    assert any("a defaultdict comes back as dict" in note for note in proof["notes"])


@pytest.mark.parametrize("name", marked(SOUND))
def test_a_sound_application_is_not_accused(name):
    code, proof = prove(name)
    assert proof["findings"] == []
    assert code == 0
    assert sum(proof["tried"].values()) >= 50
