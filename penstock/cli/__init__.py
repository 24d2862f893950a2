"""The command line: one thin command per verb."""

from penstock.cli.main import main

__all__ = ["main"]
