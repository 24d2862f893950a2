"""The prover: tests whether any Structured Streaming query delivers rows exactly once, at least once, or loses some."""
