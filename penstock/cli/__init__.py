"""The command line: one module with a thin command per verb."""

from penstock.cli.main import main

__all__ = ["main"]
