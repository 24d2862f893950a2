"""The optional dependencies (extras) of the distribution, and the error for one that is not installed."""

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import MissingExtraError

DISTRIBUTION = "penstock-streams"

EXTRA_OF = {
    **dict.fromkeys(("clarabel", "matplotlib", "mpmath", "numba", "scipy"), "models"),
    **dict.fromkeys(("google", "mmh3", "pandas", "py4j", "pyspark"), "spark"),
    **dict.fromkeys(("granian", "prometheus_client", "sse_starlette", "starlette", "uvloop"), "adapter"),
    "confluent_kafka": "kafka",
    **dict.fromkeys(("authlib", "cachetools", "fastavro", "grpc_tools", "httpx2"), "registry"),
    "datasketches": "sketches",
    "deltalake": "delta",
    **dict.fromkeys(("pyiceberg", "pyiceberg_core", "sqlalchemy"), "iceberg"),
    "opentelemetry": "telemetry",
    "psycopg": "postgresql",
    "time_machine": "prove",
    **dict.fromkeys(("fsspec", "requests", "s3fs", "upath"), "stores"),
}
"""The extra that installs a module, by the first part of the module's name."""


@contextmanager
def needs() -> Iterator[None]:
    """Turn a missing module within the block into a `MissingExtraError`, where an extra would install it.

    Raises:
        MissingExtraError: the missing module belongs to an extra; the text has the command that installs it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        extra = EXTRA_OF.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        raise MissingExtraError(
            f"This needs the module {error.name}, which is not installed: pip install '{DISTRIBUTION}[{extra}]', or from a "
            f"clone pip install '.[{extra}]'.",
            name=error.name,
        ) from error
