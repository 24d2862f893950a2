"""Vectorised windows: those with built-in reducers take a delivery's events in columns, with the results that the events would
give one by one.
"""
