"""How many rows wait at each source, by partition, from Spark's progress reports; and texts of this.

The page, the line in the terminal, the metrics and the summary of a run all use these counts.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

Positions = Mapping[str, int]
"""Counts of rows by partition, up to an offset; the name is empty if the source has no partitions."""

MOST = 0.5
"""If at least this share of the waiting rows is in the worst partition, a text mentions no other partitions."""


class Waiting(NamedTuple):
    """Rows that were there when a micro-batch was planned, and that it left for later; at most, as offsets may have gaps.

    Args:
        rows: in all.
        partitions: rows by partition; empty if the source has none.
    """

    rows: int
    partitions: Mapping[str, int]

    @property
    def worst(self) -> tuple[str, int] | None:
        """The partition with the most waiting rows, and their number; None if there are not several, or no rows wait."""
        if len(self.partitions) < 2 or not self.rows:
            return None
        name = max(self.partitions, key=lambda one: self.partitions[one])
        return name, self.partitions[name]

    def __str__(self) -> str:
        """Return how many rows wait, and where, as ``12,400, of them 12,380 in partition 3``."""
        worst = self.worst
        if worst is None:
            return f"{self.rows:,}"
        name, rows = worst
        if rows >= MOST * self.rows:
            return f"{self.rows:,}, of them {rows:,} in partition {name}"
        behind = sum(count > 0 for count in self.partitions.values())
        return f"{self.rows:,} in {behind} of {len(self.partitions)} partitions, most in partition {name} ({rows:,})"


def waiting_of(partitions: Mapping[str, int]) -> Waiting:
    """Return the `Waiting` for the number of rows that wait at each partition of a source."""
    return Waiting(sum(partitions.values()), partitions)


def said(waiting: Mapping[str, Waiting]) -> str:
    """Return a text of how many rows wait at each source; empty if none wait."""
    return "; ".join(f"waiting at {name}: {backlog}" for name, backlog in waiting.items() if backlog.rows)


def behind(end: Positions | None, latest: Positions | None) -> Waiting | None:
    """Return the rows between the end of a micro-batch and the latest of its source; None if one of them is unknown."""
    if end is None or latest is None:
        return None
    by_name = {name: max(0, place - end.get(name, 0)) for name, place in latest.items()}
    partitions = {name.rpartition("/")[2]: rows for name, rows in by_name.items() if name and end}
    return Waiting(sum(by_name.values()), partitions)


def waiting_in(progress: Mapping[str, Any], sources: Iterable[str]) -> dict[str, Waiting]:
    """Return how many rows wait, by source, from a query's progress report. Sources whose offsets count no rows are left out.

    Args:
        sources: the sources' names, in the order in which the query reads them.
    """
    by_source = {}
    for name, source in zip(sources, progress.get("sources") or (), strict=False):
        waiting = behind(positions_of(source.get("endOffset")), positions_of(source.get("latestOffset")))
        if waiting is not None:
            by_source[name] = waiting
    return by_source


def positions_of(offset: Any) -> Positions | None:
    """Return an offset of Kafka or of a sequence as counts of rows, by ``topic/partition``; None for other sources."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except json.JSONDecodeError:
            return None
    if not isinstance(offset, dict) or not offset:
        return None
    if set(offset) >= {"first", "end", "started"}:  # a sequence's; some have bookmarks, too
        return {"": int(offset["end"])}
    if not all(isinstance(partitions, dict) for partitions in offset.values()):
        return None
    flat = {
        f"{topic}/{partition}": position for topic, partitions in offset.items() for partition, position in partitions.items()
    }
    return flat if all(isinstance(position, int) for position in flat.values()) else None
