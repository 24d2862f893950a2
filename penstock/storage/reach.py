"""What is said where a store does not answer, or refuses."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import PenstockError, StoreError
from penstock.storage import durable
from penstock.storage.place import in_objects, is_local, ours

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
        where = (
            "the bucket, AWS_ENDPOINT_URL, and your credentials"
            if in_objects(place)
            else "the host, and PENSTOCK_WEBHDFS"
        )
        reason = " ".join(str(error).split())[:MOST].rstrip(".")
        raise StoreError(f"{place} cannot be reached, or refuses ({reason}): check {where}.") from error


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
