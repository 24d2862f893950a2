"""Write docs/gallery.md and its pictures from examples/gallery; with --check, only see whether they fit."""

import ast
import sys
import textwrap
from pathlib import Path

from penstock.app.loader import load_app
from penstock.app.picture import svg

ROOT = Path(__file__).parent.parent
GALLERY, PAGE, PICTURES = ROOT / "examples/gallery", ROOT / "docs/gallery.md", ROOT / "docs/images/gallery"
ORDER = (
    "sessions",
    "fraud",
    "conversions",
    "deduplication",
    "top_sellers",
    "anomalies",
    "change_data",
    "sensor_windows",
    "late_data",
    "dead_letters",
    "abandoned_carts",
    "prices",
)
HEAD = """# Gallery

Small complete applications, each with an input and what comes of it. They lie in
[examples/gallery](../examples/gallery); `tests/test_gallery.py` runs each in memory and on Spark. From a clone:

```text
penstock run examples/gallery/sessions.py --until-idle \\
    --source Clicks=jsonl:examples/gallery/input/sessions/Clicks
```

"""


def main() -> None:
    """Write what does not fit."""
    found = {PICTURES / f"{name}.svg": svg(load_app(GALLERY / f"{name}.py")[0].topology()) for name in ORDER}
    found[PAGE] = HEAD + "\n".join(map(section, ORDER))
    wrong = [path for path, text in found.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv:
        if wrong:
            raise SystemExit(f"{wrong[0].relative_to(ROOT)} does not fit examples/gallery: python scripts/gallery.py")
        return
    PICTURES.mkdir(parents=True, exist_ok=True)
    for path in wrong:
        path.write_text(found[path])


def section(name: str) -> str:
    """An application: what it is for, its picture, its code, what goes in and what comes out."""
    code = (GALLERY / f"{name}.py").read_text()
    title, _, text = (ast.get_docstring(ast.parse(code)) or "").partition("\n\n")
    short, _, longer = title.partition(": ")
    body = code.split('"""\n\n', 1)[1]
    parts = [
        f"## {short}\n",
        textwrap.fill(f"{longer[:1].upper()}{longer[1:]} {' '.join(text.split())}", 120) + "\n",
        f"![The topology of {name}](images/gallery/{name}.svg)\n",
        f"```python\n{body}```\n",
    ]
    for place in sorted((GALLERY / "input" / name).iterdir()):
        parts.append(f"`{place.name}`:\n\n```text\n{(place / '1.jsonl').read_text()}```\n")
    parts.append(f"What comes out:\n\n```text\n{(GALLERY / 'expected' / f'{name}.jsonl').read_text()}```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    main()
