"""What happens inside one partition: decoding, keyless elements, containers of instances, staged output.

Knows no engine: the Spark engine and the in-memory test driver both call it.
"""
