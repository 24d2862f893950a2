"""The prover of anybody's Structured Streaming query: is it exactly once, at least once, or does it lose rows?"""
