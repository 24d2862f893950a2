"""Build the reference from the docstrings, into build/reference."""

from pathlib import Path

import pdoc

from penstock import engine

PARTS = ("testing", "errors", "app", "runtime", "engine", "adapter", "client", "bench", "queueing", "allocation")

for name in engine.__all__:
    getattr(engine, name)  # which imports it; pdoc shows what is there
pdoc.render.configure(docformat="numpy")
pdoc.pdoc("penstock", *(f"penstock.{part}" for part in PARTS), output_directory=Path("build/reference"))
