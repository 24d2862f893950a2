"""The audit of a run: a recount from outside its own counting, of what its sources hold and what its sinks do."""
