"""Write the tables of connectors in the documents from their declarations; with --check, only see whether they fit."""

import re
import sys
from pathlib import Path

from penstock.connectors.admission import ADMISSION
from penstock.connectors.declaration import TEXT, Option
from penstock.connectors.registry import ROWS, connector

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


def main() -> None:
    """Write, or check."""
    stale = []
    for path in DOCS.rglob("*.md"):
        text = path.read_text()
        new = re.sub(
            r"(<!-- connectors: (\w+) -->\n).*?(<!-- end -->)",
            lambda match: f"{match[1]}\n{table(match[2])}\n\n{match[3]}",
            text,
            flags=re.DOTALL,
        )
        if new != text:
            stale.append(path)
            if "--check" not in sys.argv:
                path.write_text(new)
    if "--check" in sys.argv and stale:
        sys.exit(f"{', '.join(map(str, stale))}: the tables are not those of the declarations; run `make tables`.")


main()
