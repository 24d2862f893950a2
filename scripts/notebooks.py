"""Executes the notebooks of docs/notebooks and keeps what they answer now: `python scripts/notebooks.py NAME ...`.

Their test compares each answer with the one that is kept; when the models change, this says the new ones.
"""

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parent.parent / "docs/notebooks"


def execute(name: str) -> None:
    """Runs one notebook where it stands, and writes what it answered."""
    path = NOTEBOOKS / f"{name}.ipynb"
    book = nbformat.read(path, as_version=4)
    NotebookClient(book, timeout=300, record_timing=False, resources={"metadata": {"path": str(NOTEBOOKS)}}).execute()
    for cell in book.cells:
        for output in cell.get("outputs", []):
            if len(output.get("data", {})) > 1:  # the page shows the table or picture: thousands of lines beside it help nobody
                output["data"]["text/plain"] = "(shown above)"
    nbformat.write(book, path)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        execute(name)
