"""Reading recordings, with a bar for those that take a while."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.cli.bar import Bar

if TYPE_CHECKING:
    from penstock.planner import Observation


def observed(sources: Sequence[str], query: str | None, cores: float | None = None) -> Observation:
    """What recordings show."""
    from penstock.planner import observe

    with Bar("Reading") as advance:
        return observe(*sources, query=query, cores=cores, progress=advance)
