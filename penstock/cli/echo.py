"""Prints texts of commands so that a terminal obeys no control characters that came from outside."""

import click

from penstock.visible import visible


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text with its control characters made visible."""
    click.echo(visible(text), err=err, nl=nl)
