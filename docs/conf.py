"""The handbook, as Sphinx builds it: `make docs`."""

from pygments.lexers.special import TextLexer
from sphinx.highlighting import lexers

import penstock

project = "Penstock"
copyright = "the Penstock authors, Apache-2.0"
version = release = penstock.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "sphinx_copybutton"]
exclude_patterns = ["conf.py", "data"]
templates_path = ["_templates"]
default_role = "py:obj"
myst_heading_anchors = 4
nb_execution_mode = "off"  # tests/test_notebooks.py executes them
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["myst.xref_missing", "ref.python"]  # links to files of the repository; errors that two rooms name

napoleon_numpy_docstring = False
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
