"""The function `prove`, which runs the prover in a test."""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.app.application import App
from penstock.app.loader import reference
from penstock.errors import ConfigurationError
from penstock.testing.proof.proof import Proof
from penstock.testing.proof.prover import RUNS, SECONDS, Prover
from penstock.testing.proof.sample import drawn_sample, given_sample


def prove(
    app: App,
    sample: Mapping[str, Sequence[Any]] | Sequence[Any] | None = None,
    *,
    seed: int = 0,
    runs: int = RUNS,
    seconds: float = SECONDS,
) -> Proof:
    """Run an application in many ways that must give equal results, as ``penstock prove`` does; returns what was tried.

    Args:
        app: the application. It must be a variable of a module, which the prover's worker processes load.
        sample: events, or JSON as text or bytes, by source; for an application with one source, its events alone. By default
            events are drawn from their types.
        seed: the seed of random draws.
        runs, seconds: the number of runs, or the time, after which the prover stops.

    Raises:
        AssertionError: two runs differ; names the difference, the cause and the line of code.
        ConfigurationError: the application cannot be run over the sample.
    """
    topology = app.topology()
    if sample is not None and not isinstance(sample, Mapping):
        if len(topology.sources) != 1:
            raise ConfigurationError(
                f"{app.name} has {len(topology.sources)} sources: give the sample by source, as "
                f"{{'{topology.sources[0].name}': [...]}}."
            )
        sample = {topology.sources[0].name: sample}
    events = drawn_sample(topology, seed) if sample is None else given_sample(topology, sample)
    proof = Prover(app, reference(app), events, seed=seed, runs=runs, seconds=seconds, drawn=sample is None).prove()
    if not proof.sound:
        raise AssertionError(proof.to_text())
    return proof
