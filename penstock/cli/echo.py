"""What the commands print: nothing in it that came from outside is obeyed by a terminal."""

import click

from penstock.visible import visible


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text, with what is not visible made so."""
    click.echo(visible(text), err=err, nl=nl)
