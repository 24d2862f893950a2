"""Run the ``penstock`` command by ``python -m penstock``."""

from penstock.cli import main

main()
