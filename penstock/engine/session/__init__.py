"""Spark itself: finding, starting and equipping it, and what is asked of its JVM."""
