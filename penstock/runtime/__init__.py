"""The work inside one partition: decoding, keyless elements, containers of instances, staged output.

It does not depend on an engine: both the Spark engine and the in-memory test driver call it.
"""
