"""Build the handbook from docs/, the docstrings and the command line into build/handbook/VERSION, with llms.txt.

    python scripts/handbook.py [--to DIRECTORY]

Versions that lie in the directory already stay, and each page leads to them.
"""

import argparse
import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
from packaging.version import Version
from sphinx.cmd.build import build_main

import penstock
from penstock.cli.main import cli

ROOT = Path(__file__).parent.parent
PARTS = (
    "",
    "app.reducers",
    "kinds",
    "testing",
    "errors",
    "client",
    "planner",
    "queueing",
    "allocation",
    "connectors",
    "schemas",
    "engine",
    "adapter",
)


def main() -> None:
    """Build, and list the versions that are there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=ROOT / "build/handbook")
    options = parser.parse_args()
    target = options.to / penstock.__version__
    with tempfile.TemporaryDirectory() as temporary:
        source, built = Path(temporary) / "docs", Path(temporary) / "html"
        shutil.copytree(ROOT / "docs", source)
        reference(source / "reference")
        flags = ["-q", "-W", "--keep-going", "-b", "html"]
        if build_main([*flags, "-d", str(Path(temporary) / "trees"), str(source), str(built)]):
            raise SystemExit("The handbook has warnings, which are errors.")
        (built / "llms.txt").write_text(llms(source))
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(built, target)
    versions = sorted((place.name for place in options.to.iterdir() if place.is_dir()), key=Version, reverse=True)
    (options.to / "versions.js").write_text(f"window.VERSIONS = {json.dumps(versions)};\n")
    print(f"Open {target}/index.html")


def reference(place: Path) -> None:
    """A page for each part of the library, and one for the commands."""
    place.mkdir()
    lines = ["# Reference", "", "From the docstrings, and from the commands' own help.", "", "```{toctree}", ":maxdepth: 1", ""]
    described: set[str] = set()
    for part in PARTS:
        name = f"penstock.{part}".rstrip(".")
        module = import_module(name)
        members = set(getattr(module, "__all__", ()))
        for member in members:
            getattr(module, member)  # which imports it, where that waits until somebody asks
        exported = "   :imported-members:\n" if members else ""
        again = {one for one in members & described if getattr(module, one) is getattr(penstock, one, None)}
        exported += f"   :exclude-members: {', '.join(sorted(again))}\n" if again else ""
        described |= members
        (place / f"{name}.md").write_text(f"# {name}\n\n```{{eval-rst}}\n.. automodule:: {name}\n{exported}```\n")
        lines.append(name)
    (place / "commands.md").write_text("# Commands\n\n" + "\n".join(commands(cli, "penstock")))
    (place / "index.md").write_text("\n".join([*lines, "commands", "```", ""]))


def commands(command: click.Command, name: str, above: click.Context | None = None) -> Iterator[str]:
    """What each command says of itself."""
    context = click.Context(command, info_name=name.split()[-1], parent=above, max_content_width=100)
    depth = name.count(" ") + 1
    yield f"{'#' * (depth + 1)} {name}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for one in command.list_commands(context):
            below = command.get_command(context, one)
            assert below is not None
            yield from commands(below, f"{name} {one}", context)


def llms(source: Path) -> str:
    """The pages for readers that are programs: title and first sentence of each, with its text (llmstxt.org); of the
    reference, which is made of docstrings, the page itself.
    """
    lines = ["# Penstock", "", f"> {(penstock.__doc__ or '').strip().splitlines()[0]}", ""]
    for title, folder in (("Begin", "."), ("How to", "how-to"), ("Background", "background"), ("Reference", "reference")):
        lines += [f"## {title}", ""]
        for page in sorted((source / folder).glob("*.md")):
            text = page.read_text()
            heading, first = text.partition("\n")[0].lstrip("# "), _first_sentence(text)
            name = page.relative_to(source)
            where = name.with_suffix(".html") if folder == "reference" else f"_sources/{name}.txt"
            lines.append(f"- [{heading}]({where})" + (f": {first}" if first else ""))
        lines.append("")
    return "\n".join(lines)


def _first_sentence(text: str) -> str:
    paragraphs = [part.strip() for part in text.split("\n\n")[1:]]
    plain = next((part for part in paragraphs if part[:1].isalpha()), "")
    words = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", " ".join(plain.split()))
    return words.partition(". ")[0].rstrip(".:")


if __name__ == "__main__":
    main()
