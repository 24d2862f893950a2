"""The model of an application: events, streams, elements, state, topology. It is independent of any engine."""
