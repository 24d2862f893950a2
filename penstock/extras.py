"""The optional parts of the distribution, and the sentence for one that is not installed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from penstock.errors import MissingExtraError

DISTRIBUTION = "penstock-streams"

Extra = Literal["models", "engine", "spark", "adapter", "kafka", "postgresql"]

PURPOSES: dict[Extra, str] = {
    "models": "The models of waiting and placement",
    "engine": "A Spark of your environment's own",
    "spark": "Running on Spark",
    "adapter": "The adapter",
    "kafka": "Kafka",
    "postgresql": "PostgreSQL",
}


@contextmanager
def needs(extra: Extra) -> Iterator[None]:
    """Within the block, a module that cannot be found is part of an extra that is not installed.

    Raises
    ------
    MissingExtraError: names the command that installs it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "penstock":
            raise
        raise MissingExtraError(
            f"{PURPOSES[extra]} needs {error.name}, which is not installed: pip install '{DISTRIBUTION}[{extra}]' (from a "
            f"clone: pip install '.[{extra}]').",
            name=error.name,
        ) from error
