"""The parts of a report, as Markdown and as HTML: headings, paragraphs, tables and pictures."""

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path


class Heading:
    """A heading of a level."""

    def __init__(self, level: int, text: str) -> None:
        self.level, self.text = level, text


class Text:
    """A paragraph."""

    def __init__(self, text: str) -> None:
        self.text = text


class ReportTable:
    """A table."""

    def __init__(self, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        self.head, self.rows = head, rows


class Picture:
    """A picture with its caption."""

    def __init__(self, name: str, caption: str, png: bytes) -> None:
        self.name, self.caption, self.png = name, caption, png


Part = Heading | Text | ReportTable | Picture


def markdown(part: Part, directory: Path) -> str:
    """Return a part as Markdown; a picture is written to a file in ``directory``."""
    match part:
        case Heading():
            return f"{'#' * part.level} {part.text}\n\n"
        case Text():
            return f"{part.text}\n\n" if part.text else ""
        case ReportTable():
            lines = [part.head, ["---"] * len(part.head), *part.rows]
            return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines) + "\n\n"
        case Picture():
            (directory / f"{part.name}.png").write_bytes(part.png)
            return f"![{part.caption}]({part.name}.png)\n\n"


def html(part: Part) -> str:
    """Return a part as HTML; a picture is embedded in it."""
    match part:
        case Heading():
            return f"<h{part.level}>{escape(part.text)}</h{part.level}>\n"
        case Text():
            return f"<p>{escape(part.text)}</p>\n" if part.text else ""
        case ReportTable():
            head = "".join(f"<th>{escape(cell)}</th>" for cell in part.head)
            rows = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>\n" for row in part.rows)
            return f"<table><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table>\n"
        case Picture():
            data = base64.b64encode(part.png).decode()
            caption = escape(part.caption)
            image = f'<img alt="{caption}" src="data:image/png;base64,{data}">'
            return f"<figure>{image}<figcaption>{caption}</figcaption></figure>\n"
