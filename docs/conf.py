"""The handbook, as Sphinx builds it: `make docs`."""

import re
from typing import Any

from pygments.lexers.special import TextLexer
from sphinx.highlighting import lexers

import penstock

project = "Penstock"
copyright = "the Penstock authors, Apache-2.0"
version = release = penstock.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "sphinx_copybutton"]
exclude_patterns = ["conf.py", "data"]
templates_path = ["_templates"]
default_role = "py:obj"
myst_heading_anchors = 4
nb_execution_mode = "off"  # tests/test_notebooks.py executes them
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["myst.xref_missing"]  # links to files of the repository, which tests/test_docs.py follows

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}
add_module_names = False
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = f"Penstock {release}"
html_static_path = ["_static"]
html_js_files = [("../../versions.js", {"defer": "defer"}), "versions.js"]
html_show_sphinx = False
html_copy_source = True
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/versions.html",
        "sidebar/scroll-end.html",
    ]
}

lexers["mermaid"] = TextLexer()  # a picture where the file is read on a forge, its text here

LISTS = ("Parameters", "Attributes", "Raises", "Returns", "Yields")


def in_rst(app: Any, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    """Docstrings as we write them: a title underlined, below it ``name, name: what it is``, a line or more each."""
    content, section, place = [], "", 0
    while place < len(lines):
        if place + 1 < len(lines) and lines[place].strip() and re.fullmatch(r"-{3,}", lines[place + 1].strip()):
            section = lines[place].strip()
            content += ["", f".. rubric:: {section}", ""]
            place += 2
            continue
        line = lines[place]
        if section in LISTS and line[:1].strip():
            names, colon, text = line.partition(":")
            content += ["", f"- **{names.strip()}**: {text.strip()}" if colon else f"- {line.strip()}"]
        else:
            content.append(f"  {line.strip()}" if section in LISTS and line.strip() else line)
        place += 1
    lines[:] = content


def setup(app: Any) -> None:
    """As Sphinx asks for it."""
    app.connect("autodoc-process-docstring", in_rst)
