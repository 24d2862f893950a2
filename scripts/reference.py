"""Build the reference from the docstrings, into build/reference."""

import re
from html import escape
from importlib import import_module
from pathlib import Path

import pdoc
import pdoc.docstrings

from penstock import engine

PARTS = (
    "app", "testing", "errors", "client", "planner", "queueing", "allocation", "connectors", "engine", "runtime", "adapter",
    "bench",
)  # fmt: skip
TARGET = Path("build/reference")
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Penstock: reference</title>
<style>body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 48rem; margin: 2rem auto; padding: 0 1rem }}
td {{ padding: .2rem 1rem .2rem 0; vertical-align: top }}</style>
<h1>Penstock: reference</h1><table>{rows}</table></html>
"""


def described(content: str) -> str:
    """A section of parameters or errors, each as our docstrings write it: ``name, name: what it is``."""
    items = []
    for item in pdoc.docstrings._indented_list(content):
        names, colon, text = item.partition(":")
        flat = re.sub(r"\s*\n\s*", " ", text.strip())
        items.append(f" - **{names.strip()}**: {flat}\n" if colon else f" - {item.strip()}\n")
    return "".join(items) + "\n"


def index() -> str:
    """A page that leads to every part."""
    rows = []
    for name in ("penstock", *(f"penstock.{part}" for part in PARTS)):
        first = (import_module(name).__doc__ or "").strip().partition("\n")[0]
        rows.append(f'<tr><td><a href="{name.replace(".", "/")}.html">{name}</a></td><td>{escape(first)}</td></tr>')
    return PAGE.format(rows="\n".join(rows))


for name in engine.__all__:
    getattr(engine, name)  # which imports it; pdoc shows what is there
pdoc.docstrings._numpy_parameters = described
pdoc.render.configure(docformat="numpy")
pdoc.pdoc("penstock", *(f"penstock.{part}" for part in PARTS), output_directory=TARGET)
(TARGET / "index.html").write_text(index())
