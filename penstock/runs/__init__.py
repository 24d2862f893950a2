"""What a run leaves in its directory: each file has its types, its reader and its writer here, without Spark and without
sinks.
"""
