"""Stream processing on Apache Spark that knows how long events will wait."""

from importlib import import_module
from typing import Any

from penstock.app import reducers
from penstock.app.application import App
from penstock.app.element import ProcessingElement
from penstock.app.states import States
from penstock.app.stream import Emission, Sink, Source, Stream
from penstock.app.topology import Topology
from penstock.app.window import Count, Global, Session, Sliding, Tumbling, Window
from penstock.errors import PenstockError
from penstock.extras import needs
from penstock.kinds.event import Event

__version__ = "0.1.0"

__all__ = [
    "App",
    "Count",
    "Emission",
    "Event",
    "Global",
    "PenstockError",
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
    "__version__",
    "reducers",
    "run",
    "shared",
    "watch",
]


_LATER = {"watch": "penstock.planner.watching", "run": "penstock.launch.starting", "shared": "penstock.app.shared"}
"""Names imported on first access, by module: they need SciPy, Spark or asyncio, and `import penstock` must not."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needs():
        globals()[name] = member = getattr(import_module(_LATER[name]), name)
    return member
