"""Runs of the prover on Spark itself: one undisturbed, and some whose driver is killed and restarted."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.app.topology import Topology
from penstock.errors import RunFailedError
from penstock.testing.proof.agreement import Agreement, Disagreement
from penstock.testing.proof.outcome import Outcome, normal
from penstock.testing.proof.proof import Example, Finding, Proof
from penstock.testing.proof.sample import Sample
from penstock.testing.proof.schedule import MICROBATCHES

PATIENCE_S = 240.0
LOOKED_EVERY_S = 0.005

NAME = "NAME-OF-THE-RUN"

Moment = Callable[[Path, Path], bool]

MOMENTS: dict[str, Moment] = {
    "as the second micro-batch has begun": lambda run, _: any(run.glob("checkpoint/*/offsets/1")),
    "as something of the second micro-batch is staged": lambda run, output: (
        _lines(run) >= 1 and any(output.glob("*/.staging/*"))
    ),
    "as the second micro-batch has been committed": lambda run, _: _lines(run) >= 2,
}
"""When to kill a driver: conditions on the files of its run (first argument) and output (second), by their description."""


def repeat_on_spark(
    app: str,
    parameters: Sequence[str],
    topology: Topology,
    sample: Sample,
    proof: Proof,
    advance: Callable[[float, float, str], None],
) -> None:
    """Run the sample on Spark, and add differences that the runs in memory have not shown to a proof.

    Args:
        parameters: the application's parameters, as on the command line.

    Raises:
        RunFailedError: a run has ended with an error.
    """
    agreement = Agreement(topology)
    for finding in proof.findings:
        agreement.excuse(finding.element)
    with tempfile.TemporaryDirectory(prefix="penstock-prove-") as directory:
        here = Path(directory)
        command = _command(app, parameters, topology, sample, here)
        undisturbed: Outcome | None = None
        for number, moment in enumerate([None, *MOMENTS]):
            advance(number, len(MOMENTS) + 1, moment or "undisturbed")
            outcome = _run(command, here, f"run{number}", None if moment is None else MOMENTS[moment], topology)
            proof.tried["on Spark"] = proof.tried.get("on Spark", 0) + 1
            undisturbed = undisturbed or outcome
            disagreement = agreement.of(undisturbed, outcome, same_batches=False)
            if disagreement is not None:
                _add(proof, disagreement, sample, f"the driver was killed {moment}, on Spark")


def _add(proof: Proof, found: Disagreement, sample: Sample, schedule: str) -> None:
    events = {name: [event.decode("utf-8", "replace") for event in events] for name, events in sample.items()}
    example = Example(events, schedule, found.place, found.difference.missing, found.difference.extra)
    proof.findings.append(Finding("global", found.element, None, None, "", example))


def _command(app: str, parameters: Sequence[str], topology: Topology, sample: Sample, here: Path) -> list[str]:
    command = [
        sys.executable,
        "-m",
        "penstock",
        "run",
        app,
        *parameters,
        "--until-idle",
        "--runs",
        str(here / "runs"),
        "--master",
        "local[2]",
    ]
    for name, events in sample.items():
        place = here / "input" / name
        place.mkdir(parents=True)
        size = -(-len(events) // MICROBATCHES)
        for number in range(MICROBATCHES):
            file = place / f"{number}.jsonl"
            file.write_bytes(b"".join(event + b"\n" for event in events[number * size : (number + 1) * size]))
            os.utime(file, (1e9 + number, 1e9 + number))  # files are read in the order of these times
        command += ["--source", f"{name}=jsonl:{place}?max_files=1"]
    for sink in topology.sinks:
        command += ["--sink", f"{sink.name}=jsonl:{here / 'output' / NAME / sink.name}"]
    return command


def _run(command: list[str], here: Path, name: str, moment: Moment | None, topology: Topology) -> Outcome:
    """Run the application until it is idle. With a moment, kill the driver then, and restart it."""
    command = [word.replace(NAME, name) for word in [*command, "--name", name]]
    run, output = here / "runs" / name, here / "output" / name
    deadline = time.monotonic() + PATIENCE_S
    screen_file = here / f"{name}.txt"
    killed = moment is None
    while True:
        with screen_file.open("wb") as screen:
            process = subprocess.Popen(command, stdout=screen, stderr=screen, start_new_session=True)
            try:
                while process.poll() is None and time.monotonic() < deadline:
                    if not killed and moment is not None and moment(run, output):
                        os.killpg(process.pid, signal.SIGKILL)
                        process.wait()
                        killed = True
                    time.sleep(LOOKED_EVERY_S)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        if process.returncode == 0:  # otherwise it was killed on purpose, and is started again, or it has failed
            return _outcome(output, topology)
        if process.returncode != -signal.SIGKILL or time.monotonic() > deadline:
            words = screen_file.read_text(errors="replace").strip().splitlines()
            raise RunFailedError(f"The run on Spark has failed: {words[-1] if words else f'exit code {process.returncode}'}")


def _outcome(output: Path, topology: Topology) -> Outcome:
    outcome = Outcome()
    for sink in topology.sinks:
        files = sorted((output / sink.name).glob("*.jsonl"), key=lambda file: file.stat().st_mtime_ns)
        rows = [normal(line) for file in files for line in file.read_bytes().splitlines()]
        outcome.streams.setdefault(sink.stream.name, rows)
    return outcome


def _lines(run: Path) -> int:
    return sum(file.read_bytes().count(b"\n") for file in run.glob("batches-*.jsonl"))
