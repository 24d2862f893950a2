"""Windows: an element's state by spans of event time, or by counts of events."""

from penstock.app.window.windowing import Count, Global, Session, Sliding, Tumbling, Window, Windowing

__all__ = ["Count", "Global", "Session", "Sliding", "Tumbling", "Window", "Windowing"]
