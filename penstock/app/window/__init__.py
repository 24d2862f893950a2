"""Windows: an element's state by spans of event time, or by counts of events."""

from penstock.app.window.windowing import Count, Session, Sliding, Tumbling, Window, Windowing

__all__ = ["Count", "Session", "Sliding", "Tumbling", "Window", "Windowing"]
