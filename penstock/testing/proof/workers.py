"""Processes in which the application is run: its globals, its hash seed and its clock are theirs, and not the prover's."""

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
from penstock.testing.proof.world import Told

PATIENCE_S = 60.0
"""How long one answer may take."""


class Worker:
    """A process of its own.

    Parameters
    ----------
    seed: of its hashes of texts.
    """

    def __init__(self, reference: AppReference, sample: Sample, seed: int) -> None:
        mine, theirs = Pipe()
        code = (
            "from multiprocessing.connection import Connection; from penstock.testing.proof.world import serve; "
            f"serve(Connection({theirs.fileno()}))"
        )
        # No directory of the application's comes before Python's own, whatever its files are called.
        ours = str(Path(penstock.__file__).parent.parent)
        environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": ours}
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
        """Run the sample by a schedule."""
        outcome: Outcome = self._ask("run", schedule, kept)
        return outcome

    def tell(self) -> Told:
        """What is known of the application's code, and of what it does beside emitting."""
        told: Told = self._ask("tell")
        return told

    def grown(self, schedule: Schedule) -> list[Effect]:
        """What lies outside of state and is prolonged by each run."""
        grown: list[Effect] = self._ask("grown", schedule)
        return grown

    def belonging(self) -> list[tuple[Place, list[str]]]:
        """For each event of the sample what it reaches first."""
        found: list[tuple[Place, list[str]]] = self._ask("belonging")
        return found

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
