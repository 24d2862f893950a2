"""The prover in a test."""

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
    """Run an application in many ways that must all come to the same, as ``penstock prove`` does; what was tried.

    Parameters
    ----------
    app: a variable of a module, which is loaded anew in processes of the prover's own.
    sample: events, or JSON in text or bytes, by source; of an application with one source they may stand alone. Drawn from
        their types unless given.
    seed: of what is drawn. runs, seconds: after how many runs, or how long, it stops.

    Raises
    ------
    AssertionError: two runs differ; says in what, why, and where in the code.
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
