"""How long a query's code is: its lines, and those of what it names, in its own module and in its neighbours'."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

NOT_CODE = {"SQL", "COLUMNS", "LAST", "SUM", "__all__"}
"""What the comparison needs."""
GIVEN = {"Person", "Auction", "Bid", "Row", "T0", "BY_TS"}
"""The events, their times, and a type."""
Node = ast.stmt | ast.expr


def lines_of_module(path: Path) -> int:
    """Of a query that is a module."""
    tree = ast.parse(path.read_text())
    return _count(path, [one for one in tree.body if not _names(one) & NOT_CODE])


def lines_of_entry(path: Path) -> dict[str, int]:
    """Of queries that are functions of a module, or entries of its ``QUERIES``."""
    tree = ast.parse(path.read_text())
    queries: dict[str, Node] = {
        one.name: one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name[1:].isdigit()
    }
    if not queries:
        (table,) = [one.value for one in tree.body if isinstance(one, ast.Assign) and _names(one) == {"QUERIES"}]
        assert isinstance(table, ast.Dict)
        queries = {ast.literal_eval(key): value for key, value in zip(table.keys, table.values, strict=True) if key}
    return {name: _count(path, [node]) for name, node in queries.items()}


def _count(path: Path, roots: Iterable[Node]) -> int:
    return sum(len(lines) for lines in _reached(path, roots).values())


def _reached(path: Path, roots: Iterable[Node]) -> dict[Path, set[int]]:
    """The lines of nodes and of the statements that they name, by file."""
    tree = ast.parse(path.read_text())
    defined = {name: one for one in tree.body for name in _names(one)}
    elsewhere = {
        name.asname or name.name: (path.with_name(f"{one.module}.py"), name.name)
        for one in tree.body
        if isinstance(one, ast.ImportFrom) and one.module not in ("model", None)
        for name in one.names
        if path.with_name(f"{one.module}.py").exists()
    }
    left, done, found = list[Node](roots), set[str](), {path: set[int]()}
    while left:
        node = left.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            continue
        found[path] |= set(_code(path, node))
        for named in {one.id for one in ast.walk(node) if isinstance(one, ast.Name)} - done - GIVEN - NOT_CODE:
            done.add(named)
            if named in defined:
                left.append(defined[named])
            elif named in elsewhere:
                other, name = elsewhere[named]
                there = {key: one for one in ast.parse(other.read_text()).body for key in _names(one)}
                for file, lines in _reached(other, [there[name]]).items():
                    found.setdefault(file, set()).update(lines)
    return found


def _names(statement: ast.stmt) -> set[str]:
    """What a statement defines."""
    if isinstance(statement, ast.Assign):
        return {one.id for target in statement.targets for one in ast.walk(target) if isinstance(one, ast.Name)}
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    return set()


def _code(path: Path, node: Node) -> Iterator[int]:
    """The lines of a node that have code: neither blank nor only documentation."""
    text = path.read_text().splitlines()
    documentation = {
        line
        for one in [node, *ast.walk(node)]
        if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str)
        for line in range(one.lineno, (one.end_lineno or one.lineno) + 1)
    }
    first = min((one.lineno for one in getattr(node, "decorator_list", [])), default=node.lineno)
    for line in range(first, (node.end_lineno or first) + 1):
        if text[line - 1].strip() and line not in documentation:
            yield line
