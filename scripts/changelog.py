"""Put the fragments of changes/ into CHANGELOG.md under the version at hand, and remove them; with --draft, print them."""

import sys
from datetime import UTC, datetime
from pathlib import Path

import penstock

ROOT = Path(__file__).parent.parent
KINDS = {"added": "Added", "changed": "Changed", "fixed": "Fixed", "removed": "Removed"}
MARK = "<!-- releases -->\n"


def section() -> str:
    """All fragments, by kind."""
    lines = [f"## {penstock.__version__} ({datetime.now(UTC):%Y-%m-%d})", ""]
    for kind, heading in KINDS.items():
        fragments = sorted((ROOT / "changes").glob(f"*.{kind}.md"), key=lambda path: int(path.name.partition(".")[0]))
        if fragments:
            lines += [f"### {heading}", "", *(path.read_text().strip() for path in fragments), ""]
    return "\n".join(lines)


def main() -> None:
    """Write, or print."""
    if "--draft" in sys.argv:
        print(section())
        return
    changelog = ROOT / "CHANGELOG.md"
    before, mark, after = changelog.read_text().partition(MARK)
    changelog.write_text(f"{before}{mark}\n{section()}{after}")
    for path in (ROOT / "changes").glob("*.md"):
        path.unlink()


main()
