"""Figures in text, and HTML for notebooks: a table of names and values, or a whole page in a frame."""

from collections.abc import Iterable
from html import escape

FRAME = 640
"""Height of a frame, in pixels."""


def table(title: str, rows: Iterable[tuple[str, str]], note: str) -> str:
    """Return names and values as an HTML table with a title and a note."""
    lines = "".join(f'<tr><td style="text-align:left">{escape(name)}</td><td>{escape(value)}</td></tr>' for name, value in rows)
    return f"<table><caption>{escape(title)}</caption>{lines}</table><p><small>{escape(note)}</small></p>"


def framed(page: str) -> str:
    """Return a whole page in a frame, so that the notebook's styles do not apply to it."""
    return f'<iframe srcdoc="{escape(page)}" style="width:100%;height:{FRAME}px;border:1px solid #8888" sandbox></iframe>'


def rounded(value: float) -> str:
    """Return a figure with the digits that count: 1,006 and 12, but 2.5 and 0.017.

    Examples:
        >>> rounded(1005.7), rounded(0.0166)
        ('1,006', '0.017')
    """
    return f"{value:,.0f}" if 10 <= value < 1e15 else f"{value:.2g}"
