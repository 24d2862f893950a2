"""The model of an application: events, streams, elements, state, topology. It is independent of any engine."""

from penstock.app import reducers
from penstock.app.application import App
from penstock.app.element import ProcessingElement
from penstock.app.states import States
from penstock.app.stream import Emission, Sink, Source, Stream
from penstock.app.topology import Topology
from penstock.app.window import Count, Global, Session, Sliding, Tumbling, Window
from penstock.kinds.event import Event

__all__ = [
    "App",
    "Count",
    "Emission",
    "Event",
    "Global",
    "ProcessingElement",
    "Session",
    "Sink",
    "Sliding",
    "Source",
    "States",
    "Stream",
    "Topology",
    "Tumbling",
    "Window",
    "reducers",
]
