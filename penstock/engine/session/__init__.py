"""Spark sessions: finding Java, starting Spark, providing its jars, and access to objects in its JVM."""
