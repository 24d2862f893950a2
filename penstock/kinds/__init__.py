"""Kinds: what a field of an event can hold, and how each place that holds values holds it. Everything else asks here."""

from penstock.kinds.event import Event
from penstock.kinds.kind import Kind
from penstock.kinds.table import register

__all__ = ["Event", "Kind", "register"]
