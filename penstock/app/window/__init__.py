"""Windows divide an element's state by spans of event time or counts of events. Each kind has its own module."""

from penstock.app.window.aligned import Sliding, Tumbling
from penstock.app.window.counts import Count
from penstock.app.window.endless import Global
from penstock.app.window.sessions import Session
from penstock.app.window.windowing import Window, Windowing

__all__ = ["Count", "Global", "Session", "Sliding", "Tumbling", "Window", "Windowing"]
