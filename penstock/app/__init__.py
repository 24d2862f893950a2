"""What an application is: events, streams, elements, state, topology. Knows no engine."""

from penstock.app.application import App
from penstock.app.element import ProcessingElement
from penstock.app.event import Event
from penstock.app.stream import Emission, Sink, Source, Stream
from penstock.app.topology import Topology

__all__ = ["App", "Emission", "Event", "ProcessingElement", "Sink", "Source", "Stream", "Topology"]
