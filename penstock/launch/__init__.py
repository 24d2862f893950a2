"""Launching: a run together with what goes beside it: an adapter, a planner that adapts it, a page, a collector."""
