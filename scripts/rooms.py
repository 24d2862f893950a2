"""The rooms of the package and the arrows between them, as its imports have them."""

import ast
import re
from pathlib import Path

import grimp
import networkx as nx

PACKAGE = Path(__file__).parent.parent / "penstock"


def rooms() -> dict[str, str]:
    """What each folder of the package is for: the first sentences of its docstring, in one line."""
    found = {}
    for place in sorted(PACKAGE.glob("*/__init__.py")):
        about = ast.get_docstring(ast.parse(place.read_text())) or ""
        found[place.parent.name] = re.sub(r"\s+", " ", about.partition("\n\n")[0])
    return found


def arrows() -> nx.DiGraph:
    """From a room to those that it imports, without the arrows that others imply."""
    imports, names = grimp.build_graph("penstock"), list(rooms())
    graph = nx.DiGraph()
    graph.add_nodes_from(names)
    for one in names:
        for other in names:
            if one != other and _imports(imports, one, other):
                graph.add_edge(one, other)
    return nx.transitive_reduction(graph)


def _imports(imports: grimp.ImportGraph, one: str, other: str) -> bool:
    own = {f"penstock.{one}", *imports.find_descendants(f"penstock.{one}")}
    others = {f"penstock.{other}", *imports.find_descendants(f"penstock.{other}")}
    return any(imports.find_modules_directly_imported_by(module) & others for module in own)


def drawing() -> str:
    """The rooms and arrows as a Mermaid flowchart."""
    lines = [f"    {one} --> {other}" for one, other in sorted(arrows().edges)]
    return "\n".join(["```mermaid", "flowchart TD", *lines, "    client -. HTTP .-> adapter", "```"])


def table() -> str:
    """The rooms as a Markdown table."""
    rows = [f"| `penstock/{name}` | {about.removesuffix('.')} |" for name, about in rooms().items()]
    return "\n".join(["| room | what it is for |", "| --- | --- |", *rows])
