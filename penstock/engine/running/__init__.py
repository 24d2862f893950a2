"""A run, from its options to its report: what it is bound to, its micro-batches, their commits, and what may end or change
it.
"""
