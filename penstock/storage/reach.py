"""What is said where a store does not answer, or refuses."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import PenstockError, StoreError
from penstock.storage import durable
from penstock.storage.place import in_objects, is_local, ours

LIBRARIES = ("aiobotocore", "aiohttp", "botocore", "requests")
"""Whose errors are not all of Python's own for input and output."""
MOST = 200
"""Characters of a library's own words that are shown."""


@contextmanager
def reaching(place: Path) -> Iterator[None]:
    """Within the block, what goes wrong with a place in a store is said in a sentence.

    Raises
    ------
    StoreError: the store does not answer, knows no such bucket, or refuses.
    """
    try:
        yield
    except PenstockError:
        raise
    except Exception as error:  # libraries for stores have trees of their own
        if is_local(place):
            raise
        raise refusal(place, error) from error


def refusal(place: Path, error: Exception) -> StoreError:
    """The error for a place whose store has not done what was asked of it."""
    where = (
        "the bucket and its room, AWS_ENDPOINT_URL, and your credentials"
        if in_objects(place)
        else "the host and its room, and PENSTOCK_WEBHDFS"
    )
    reason = " ".join(str(error).split())[:MOST].rstrip(".")
    return StoreError(f"{place} cannot be reached, or refuses ({reason}): check {where}.")


def is_of_store(error: Exception) -> bool:
    """Whether an error is one of those that the libraries for stores raise."""
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in LIBRARIES


def check(place: Path) -> None:
    """Refuse a place whose store cannot be used.

    Raises
    ------
    StoreError: see `reaching`.
    """
    with reaching(place):
        durable.names(place)
        if in_objects(place):
            bucket = ours(place).path.partition("/")[0]
            if not ours(place).fs.exists(bucket):
                raise StoreError(
                    f"{place}: there is no bucket {bucket}, or you may not see it: make it, or correct its name."
                )
