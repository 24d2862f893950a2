"""Checks whether an application can run in memory, or in Spark's real-time mode."""

import pyarrow as pa

from penstock.app.queries import JoinQuery, WindowQuery
from penstock.app.topology import Topology
from penstock.errors import ConfigurationError, TopologyError
from penstock.runtime.codec import Codec


def refuse_in_memory(topology: Topology) -> None:
    """Refuse a topology that the in-memory test driver cannot run.

    Raises:
        TopologyError: names the element.
    """
    for element in topology.elements:
        if element.dialect == "query":
            raise TopologyError(
                f"Element {element.name} is in the query dialect, which only Spark can run: test it with "
                "penstock.run(app), or write it in the event or batch dialect."
            )


def refuse_in_real_time(topology: Topology) -> None:
    """Refuse a topology that Spark's real-time mode cannot run.

    Raises:
        ConfigurationError: names the element or the source, and the remedy.
    """
    for element in topology.elements:
        if element.dialect != "query":
            raise ConfigurationError(
                f"Element {element.name} is of the {element.dialect} dialect, and real-time mode runs no Python: write it in "
                "the query dialect, or leave --real-time out."
            )
        if isinstance(element.body, WindowQuery | JoinQuery):
            raise ConfigurationError(
                f"Element {element.name} is a window or a join, which waits for more than one event, and real-time mode "
                "passes each on as it comes: leave --real-time out."
            )
    for stream in topology.sources:
        if not Codec(stream.event_type).flat:
            raise ConfigurationError(
                f"Source {stream.name}: real-time mode decodes events in Spark, which takes plain scalars only; "
                f"{stream.event_type.__name__} has other fields, or asks more of them than their types."
            )
        lengths = [field.name for field in Codec(stream.event_type).schema if field.type == pa.duration("us")]
        if lengths:
            raise ConfigurationError(
                f"Source {stream.name}: Spark, which decodes events in real-time mode, reads no lengths of time from JSON, and "
                f"{stream.event_type.__name__} has {', '.join(lengths)}: give seconds as a number, or leave --real-time out."
            )
