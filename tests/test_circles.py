"""No module imports another that imports it, on however long a way; what is imported for types alone does not count."""

import grimp
import networkx as nx


def test_there_are_no_circles_of_imports():
    graph = grimp.build_graph("penstock", exclude_type_checking_imports=True)
    edges = ((module, other) for module in graph.modules for other in graph.find_modules_directly_imported_by(module))
    assert [sorted(part) for part in nx.strongly_connected_components(nx.DiGraph(edges)) if len(part) > 1] == []
