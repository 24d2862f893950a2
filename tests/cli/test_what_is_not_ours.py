"""Commands that would answer with another's figures, or from a damaged file, say so."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.errors import PenstockError, SourceError
from penstock.runs.letters import _letters_in

RECORDING = Path(__file__).parents[2] / "examples/recordings/digests-1.jsonl"
SWEEP = ["queue", "sweep", "--service-rate", "1000", "--over", "batch-size=5,25"]


def said(*arguments):
    result = CliRunner().invoke(cli, list(map(str, arguments)))
    return (2 if isinstance(result.exception, PenstockError) else result.exit_code), str(result.exception or "") + result.output


def test_a_sweep_is_resumed_by_itself_only(tmp_path):
    output = tmp_path / "s.jsonl"
    assert said(*SWEEP, "--arrival-rate", 750, "-o", output)[0] == 0
    whole = output.read_bytes()
    assert said(*SWEEP, "--arrival-rate", 750, "-o", output)[0] == 0
    assert output.read_bytes() == whole
    output.write_bytes(whole[:-5])  # as a kill may leave it
    assert said(*SWEEP, "--arrival-rate", 750, "-o", output)[0] == 0
    assert output.read_bytes() == whole
    for other in (["--arrival-rate", 10], ["--arrival-rate", 750, "--quantiles"], ["--arrival-rate", 750, "--holding-cost", 1]):
        code, words = said(*SWEEP, *other, "-o", output)
        assert (code, "does not hold this sweep of this server" in words) == (2, True)
    assert output.read_bytes() == whole


@pytest.mark.parametrize("content", [b'{"my": "precious config"}', b"a text\n", b"\xff\xfe\n", b"[]\n", b'{"batch_size": 5}\n'])
def test_a_file_that_is_no_sweep_is_left_as_it_is(tmp_path, content):
    (tmp_path / "own").write_bytes(content)
    code, words = said(*SWEEP, "--arrival-rate", 750, "-o", tmp_path / "own")
    assert (code, "does not hold this sweep" in words) == (2, True)
    assert (tmp_path / "own").read_bytes() == content


@pytest.mark.parametrize(
    "arguments",
    [["predict", RECORDING, "--cores", 4], ["plan", RECORDING, "--p95", "5s", "--what-if", "cores=1"]],
    ids=["predict", "plan"],
)
def test_other_cores_than_a_recording_tells_of_are_not_guessed(arguments):
    code, words = said(*arguments)
    assert (code, "give --recorded-cores" in words) == (2, True)
    assert "give --recorded-cores" not in said(*arguments, "--recorded-cores", 4)[1]


@pytest.mark.parametrize("cores", ["²", "-1", "x"])
def test_cores_are_a_whole_number(cores):
    assert said("predict", RECORDING, "--what-if", f"cores={cores}")[0] == 2


def test_a_torn_letter_is_named(tmp_path):
    (tmp_path / "letters.jsonl").write_text('{"element": "a"\n')
    with pytest.raises(SourceError, match=r"Line 1 of .*letters\.jsonl is no dead letter"):
        list(_letters_in(tmp_path / "letters.jsonl"))


@pytest.mark.parametrize("phases", [{"latestOffset": 20_000}, {"addBatch": -5}, {"commitOffsets": 99_000}])
def test_a_micro_batch_that_cannot_be_is_not_believed(tmp_path, phases):
    lines = RECORDING.read_text().splitlines()
    changed = []
    for number, line in enumerate(lines):
        entry = json.loads(line)
        progress = entry.get("progress", entry)
        if number % 2 and "durationMs" in progress:
            progress["durationMs"] |= phases
        changed.append(json.dumps(entry))
    (tmp_path / "odd.jsonl").write_text("\n".join(changed) + "\n")
    code, words = said("predict", tmp_path / "odd.jsonl")
    assert "latency" not in words or "-" not in words.partition("mean")[2][:4], words
    assert code in (0, 2)
