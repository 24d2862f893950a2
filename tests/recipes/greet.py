"""A verb from outside the package."""

import click


@click.command()
@click.argument("name")
def greet(name: str) -> None:
    """Greet somebody."""
    click.echo(f"Good day, {name}.")
