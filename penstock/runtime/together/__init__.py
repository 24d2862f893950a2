"""Vectorised windows: built-in reducers take a delivery's events at once, with results equal to those of one by one."""
