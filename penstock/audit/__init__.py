"""The audit of a run: compares its sinks with an independent replay of its sources, without trusting its own counts."""
