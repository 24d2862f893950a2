"""Kinds: the types that fields of events can have, and how columns, databases, messages and schemas represent their values."""

from penstock.kinds.event import Event
from penstock.kinds.kind import Kind
from penstock.kinds.table import register

__all__ = ["Event", "Kind", "register"]
