"""Stream processing on Apache Spark that knows how long events will wait."""

from importlib import import_module
from typing import Any

from penstock.app import (
    App,
    Count,
    Emission,
    Event,
    Global,
    ProcessingElement,
    Session,
    Sink,
    Sliding,
    Source,
    States,
    Stream,
    Topology,
    Tumbling,
    Window,
    reducers,
)
from penstock.errors import PenstockError
from penstock.extras import needs

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
    "watch",
]


def __getattr__(name: str) -> Any:
    """Import the planner when it is first asked for: it needs SciPy, and `import penstock` does not."""
    if name != "watch":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needs():
        globals()[name] = watch = import_module("penstock.planner.watching").watch
    return watch
