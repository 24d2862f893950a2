"""How things show themselves in a notebook: as a table, or as a page of their own in a frame."""

from collections.abc import Iterable
from html import escape

FRAME = 640
"""Height of a frame, in pixels."""


def table(title: str, rows: Iterable[tuple[str, str]], note: str) -> str:
    """Names and values, as HTML."""
    lines = "".join(f'<tr><td style="text-align:left">{escape(name)}</td><td>{escape(value)}</td></tr>' for name, value in rows)
    return f"<table><caption>{escape(title)}</caption>{lines}</table><p><small>{escape(note)}</small></p>"


def framed(page: str) -> str:
    """A whole page, kept apart from the notebook's styles."""
    return f'<iframe srcdoc="{escape(page)}" style="width:100%;height:{FRAME}px;border:1px solid #8888" sandbox></iframe>'
