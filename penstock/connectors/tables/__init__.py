"""Sinks that write to tables: SQLite, PostgreSQL, Delta and Iceberg; and Delta tables as sources."""
