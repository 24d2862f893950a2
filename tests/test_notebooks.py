"""The notebooks run, and what they say is what they were committed with (scripts/notebooks.py commits it anew)."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parent.parent / "docs/notebooks"

NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")


def said(book):
    """The texts of a notebook's answers; pictures and tables only by their kind."""
    found = []
    for cell in book.cells:
        for output in cell.get("outputs", []):
            kinds = sorted(output.get("data", {}))
            text = output.get("text") or output.get("data", {}).get("text/plain", "")
            found.append((output["output_type"], kinds, text if kinds in ([], ["text/plain"]) else ""))
    return found


def numbers(answers):
    """The numbers of the answers, whose last digits differ from one processor to another."""
    return [float(number) for *_, text in answers for number in NUMBER.findall(text)]


def execute(name, directory):
    book = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    committed = said(book)
    NotebookClient(book, timeout=300, resources={"metadata": {"path": str(directory)}}).execute()
    return committed, said(book)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tune-a-query", "how-long-to-wait"])
def test_models_in_a_notebook(name):
    committed, now = execute(name, NOTEBOOKS)
    assert [(*kind, NUMBER.sub("#", text)) for *kind, text in now] == [
        (*kind, NUMBER.sub("#", text)) for *kind, text in committed
    ]
    assert numbers(now) == pytest.approx(numbers(committed), rel=1e-6)


@pytest.mark.slow
@pytest.mark.spark
def test_a_stream_in_a_notebook(tmp_path):
    committed, now = execute("first-stream", tmp_path)
    assert [kinds for _, kinds, _ in now] == [kinds for _, kinds, _ in committed]
    assert "seen=3" in now[-1][2]
