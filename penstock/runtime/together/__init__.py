"""Many events at once: windows whose results are reducers' take a delivery in columns, and come to what its events would one by
one.
"""
