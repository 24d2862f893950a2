"""Write the tables of connectors, kinds of fields and rooms in the documents from the code; with --check, only see whether they
fit.
"""

import re
import sys
from importlib import import_module
from pathlib import Path

import completeness
import rooms

from penstock.connectors.admission import ADMISSION
from penstock.connectors.declaration import TEXT, Option
from penstock.connectors.registry import ROWS, connector
from penstock.kinds.table import kinds
from penstock.ui.metrics import exposition

DOCS = Path(__file__).parent.parent / "docs"
SHARED = {option.name for option in ADMISSION}


def table(side: str) -> str:
    """The connectors of a side, as a Markdown table."""
    rows = ["| URI | what it is | works | options |", "| --- | --- | --- | --- |"]
    for scheme in ROWS[side]:
        found = connector(side, scheme)
        own = [option for option in found.options if option.name not in SHARED]
        admits = "admission" if len(own) < len(found.options) else None
        options = ", ".join([*(f"`{option.name}`" for option in own), *([admits] if admits else [])]) or "none"
        rows.append(f"| `{found.form}` | {found.help} | {found.reach} | {options} |")
    return "\n".join([*rows, "", *options_of(side)])


def options_of(side: str) -> list[str]:
    """Each option once, with what it means."""
    options: dict[str, tuple[Option, list[str]]] = {}
    for scheme in ROWS[side]:
        for option in connector(side, scheme).options:
            options.setdefault(f"{option.name} {option.help}", (option, []))[1].append(scheme)
    rows = ["| option | of | meaning | value |", "| --- | --- | --- | --- |"]
    for option, schemes in options.values():
        value = "" if option.kind is TEXT else option.kind.words
        rows.append(f"| `{option.name}` | {', '.join(schemes)} | {option.help} | {value} |")
    return rows if len(rows) > 2 else []


def kinds_of_fields() -> str:
    """What a field can be, and how each place keeps it, as a Markdown table."""
    heads = ("field", "column (Arrow, Parquet)", "array of state", "PostgreSQL", "SQLite", "Avro", "Protobuf", "JSON Schema")
    rows = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for kind in kinds():
        avro = kind.avro if isinstance(kind.avro, str) else kind.avro["logicalType"]
        array = f"`{kind.array}`" if kind.array else "none"
        cells = (kind.arrow(), kind.postgresql, kind.sqlite, avro, kind.protobuf)
        column, postgresql, sqlite, avro, protobuf = (f"`{cell}`" for cell in cells)
        schema = f"`{kind.json_schema}`" if kind.json_schema else ""
        rows.append(f"| `{kind.name}` | {column} | {array} | {postgresql} | {sqlite} | {avro} | {protobuf} | {schema} |")
    return "\n".join(rows)


def metrics() -> str:
    """What `/metrics` tells, as a Markdown table, from what it says of itself where no run is on."""
    found = re.findall(r"# HELP (\w+) (.*)\n# TYPE \w+ (\w+)", exposition({}, []).decode())
    rows = [f"| `{name}` | {kind} | {about} |" for name, about, kind in found]
    return "\n".join(["| metric | type | what it is |", "| --- | --- | --- |", *rows])


def cells(side: str) -> str:
    """What has been tried at each source or sink, and what the tests hold of it."""
    sys.path.insert(0, str(DOCS.parent / "tests" / "connectors"))
    text: str = import_module(f"{side}_cells").table()
    return text


def rooms_as(what: str) -> str:
    """The rooms of the package: their table, or their drawing."""
    return rooms.table() if what == "table" else rooms.drawing()


MADE = {
    "completeness": completeness.table,
    "connectors": table,
    "kinds": kinds_of_fields,
    "metrics": metrics,
    "cells": cells,
    "rooms": rooms_as,
}
"""What makes the table that stands behind a mark."""
TABLE = re.compile(rf"(<!-- ({'|'.join(MADE)})(?:: (\w+))? -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> None:
    """Write, or check."""
    stale = []
    for path in (*DOCS.rglob("*.md"), DOCS.parent / "CONTRIBUTING.md"):
        text = path.read_text()
        new = TABLE.sub(lambda found: f"{found[1]}\n{MADE[found[2]](*filter(None, [found[3]]))}\n\n{found[4]}", text)
        if new != text:
            stale.append(path)
            if "--check" not in sys.argv:
                path.write_text(new)
    if "--check" in sys.argv and stale:
        sys.exit(f"{', '.join(map(str, stale))}: the tables are not those of the declarations; run `make tables`.")


main()
