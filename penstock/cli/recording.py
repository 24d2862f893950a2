"""Reads recordings, with a progress bar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.cli.bar import Bar

if TYPE_CHECKING:
    from penstock.planner import Observation


def observed(sources: Sequence[str], query: str | None, cores: float | None = None) -> Observation:
    """Observe recordings, with a progress bar."""
    from penstock.planner import observe

    with Bar("Reading") as advance:
        return observe(*sources, query=query, cores=cores, progress=advance)
