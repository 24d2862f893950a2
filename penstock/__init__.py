"""Stream processing on Apache Spark that knows how long events will wait."""

from penstock.app import App, Emission, Event, ProcessingElement, Sink, Source, Stream, Topology
from penstock.errors import PenstockError

__version__ = "0.1.0"

__all__ = [
    "App",
    "Emission",
    "Event",
    "PenstockError",
    "ProcessingElement",
    "Sink",
    "Source",
    "Stream",
    "Topology",
    "__version__",
]
