"""Worker processes that run the application, so that globals, hash seed and clock are not the prover's own."""

import os
import subprocess
import sys
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

import penstock
from penstock.app.loader import AppReference
from penstock.errors import ConfigurationError, PenstockError
from penstock.testing.proof.effects import Effect
from penstock.testing.proof.outcome import Outcome
from penstock.testing.proof.sample import Sample
from penstock.testing.proof.schedule import Place, Schedule
from penstock.testing.proof.world import CodeFacts

PATIENCE_S = 60.0
"""The most time that an answer of a worker may take."""


class Worker:
    """A process that runs the sample by schedules; its methods call those of its `World`.

    Args:
        seed: its PYTHONHASHSEED.
        zone: its time zone; that of the machine unless given.
    """

    def __init__(self, reference: AppReference, sample: Sample, seed: int, zone: str | None = None) -> None:
        mine, theirs = Pipe()
        code = (
            "from multiprocessing.connection import Connection; from penstock.testing.proof.world import serve; "
            f"serve(Connection({theirs.fileno()}))"
        )
        # Directories of the application must not precede Python's own: its files might shadow modules.
        ours = str(Path(penstock.__file__).parent.parent)
        environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": ours, **({"TZ": zone} if zone else {})}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", code],
            pass_fds=[theirs.fileno()],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        theirs.close()
        self._connection: Connection = mine
        self._connection.send((reference, sample, [entry or str(Path.cwd()) for entry in sys.path]))

    def run(self, schedule: Schedule, kept: frozenset[Place] | None = None) -> Outcome:
        """Run the sample, or only the events in ``kept``, by a schedule."""
        outcome: Outcome = self._ask("run", schedule, kept)
        return outcome

    def tell(self) -> CodeFacts:
        """Return the suspects in the application's code, and the effects it has had so far."""
        facts: CodeFacts = self._ask("tell")
        return facts

    def grown(self, schedule: Schedule) -> list[Effect]:
        """Return effects for lists and files that grow with each run; see `World.grown`."""
        grown: list[Effect] = self._ask("grown", schedule)
        return grown

    def belonging(self) -> list[tuple[Place, list[str]]]:
        """Return, for each event, the instances and rows that it reaches first; see `World.belonging`."""
        reached: list[tuple[Place, list[str]]] = self._ask("belonging")
        return reached

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.kill()
        self._process.wait()

    def _ask(self, name: str, *arguments: Any) -> Any:
        try:
            self._connection.send((name, arguments))
            if not self._connection.poll(PATIENCE_S):
                raise ConfigurationError(
                    f"The application has not come to an end of its sample for {PATIENCE_S:g} s: see that no hook waits for "
                    "ever, or give a smaller sample."
                )
            kind, answer = self._connection.recv()
        except (EOFError, ConnectionError) as error:
            code = self._process.wait()
            raise ConfigurationError(
                f"The application has ended the process that ran it (exit code {code}): no hook may do that, and no import of "
                "its file."
            ) from error
        if kind == "refused":
            assert isinstance(answer, PenstockError)
            raise answer
        if kind == "failed":
            raise ConfigurationError(f"The application could not be run over its sample: {answer}.")
        return answer
