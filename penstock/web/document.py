"""Self-contained HTML pages in a common style."""

from collections.abc import Iterable
from html import escape

STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem }
table { border-collapse: collapse; width: 100% }
td, th { padding: .3rem .6rem; border-bottom: 1px solid #8888; text-align: right }
td:first-child, th:first-child { text-align: left } code, pre { font: 14px/1.5 ui-monospace, monospace }
code { background: #8882; padding: .1rem .3rem } pre { padding: .5rem .75rem; overflow-x: auto; border: 1px solid #8888 }
.kind { font-size: .85rem } svg { width: 100%; height: auto; background: #fff } img { max-width: 100%; background: #fff }
"""


def document(title: str, parts: Iterable[str]) -> str:
    """Return an HTML page with a title; the parts are HTML, and empty ones are left out."""
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    body = "\n".join(filter(None, parts))
    return f'<!doctype html><html lang="en"><head>{head}<style>{STYLE}</style></head><body>\n{body}\n</body></html>\n'
