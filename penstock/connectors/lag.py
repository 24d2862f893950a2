"""How far a source is read and what waits behind that, by partition, of what Spark says after a micro-batch; and that in words.

The page, the line in the terminal, the metrics and the summary of a run all reckon by this.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

Positions = Mapping[str, int]
"""How far a source has been read: a count of rows by partition; under an empty name, where it has no partitions."""

MOST = 0.5
"""A partition with such a share of what waits is named by itself."""


class Waiting(NamedTuple):
    """Rows that were there when a micro-batch was planned, and were left for later; at most, for some offsets hold none.

    Parameters
    ----------
    partitions: the same by partition; empty, where the source has none.
    """

    rows: int
    partitions: Mapping[str, int]

    @property
    def worst(self) -> tuple[str, int] | None:
        """The partition that most wait at, of several, and how many there."""
        if len(self.partitions) < 2 or not self.rows:
            return None
        name = max(self.partitions, key=lambda one: self.partitions[one])
        return name, self.partitions[name]

    def __str__(self) -> str:
        """How many, and where: ``12,400, of them 12,380 in partition 3``."""
        worst = self.worst
        if worst is None:
            return f"{self.rows:,}"
        name, rows = worst
        if rows >= MOST * self.rows:
            return f"{self.rows:,}, of them {rows:,} in partition {name}"
        behind = sum(one > 0 for one in self.partitions.values())
        return f"{self.rows:,} in {behind} of {len(self.partitions)} partitions, most in partition {name} ({rows:,})"


def waiting_of(partitions: Mapping[str, int]) -> Waiting:
    """What waits, given how much at each partition of a source."""
    return Waiting(sum(partitions.values()), partitions)


def said(waiting: Mapping[str, Waiting]) -> str:
    """What waits at each source; empty where nothing does."""
    return "; ".join(f"waiting at {name}: {one}" for name, one in waiting.items() if one.rows)


def behind(end: Positions | None, latest: Positions | None) -> Waiting | None:
    """What waits between the end of a micro-batch and that of its source; None where one of them is not said."""
    if end is None or latest is None:
        return None
    by_name = {name: max(0, place - end.get(name, 0)) for name, place in latest.items()}
    partitions = {name.rpartition("/")[2]: rows for name, rows in by_name.items() if name and end}
    return Waiting(sum(by_name.values()), partitions)


def waiting_in(progress: Mapping[str, Any], sources: Iterable[str]) -> dict[str, Waiting]:
    """What waits at each source of a query that tells, by Spark's progress.

    Parameters
    ----------
    sources: their names, in the order in which the query reads them.
    """
    found = {}
    for name, source in zip(sources, progress.get("sources") or (), strict=False):
        waiting = behind(positions_of(source.get("endOffset")), positions_of(source.get("latestOffset")))
        if waiting is not None:
            found[name] = waiting
    return found


def positions_of(offset: Any) -> Positions | None:
    """Offsets that count rows: Kafka's, by topic and partition, and those of Penstock's own sources; None for others."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except json.JSONDecodeError:
            return None
    if not isinstance(offset, dict) or not offset:
        return None
    if set(offset) >= {"first", "end", "started"}:  # some have bookmarks, too
        return {"": int(offset["end"])}
    if not all(isinstance(partitions, dict) for partitions in offset.values()):
        return None
    flat = {
        f"{topic}/{partition}": position for topic, partitions in offset.items() for partition, position in partitions.items()
    }
    return flat if all(isinstance(position, int) for position in flat.values()) else None
