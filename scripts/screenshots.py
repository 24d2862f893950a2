"""Pictures of the page for the documents, taken of the run that the tests have recorded; needs Chromium.

Usage: screenshots.py [DIRECTORY]
"""

import os
import sys
from pathlib import Path

from penstock.ui.server import saved

HERE = Path(__file__).parent.parent
VIEWS = ((1440, False), (1440, True), (768, False), (390, True))


def main() -> None:
    """Take them."""
    sys.path.insert(0, str(HERE / "tests"))
    from browsers import Browser

    place = Path(sys.argv[1] if len(sys.argv) > 1 else HERE / "docs" / "images").absolute()
    page = HERE / "build" / "page.html"
    page.parent.mkdir(exist_ok=True)
    os.chdir(HERE / "tests" / "ui")  # a run's path is on its page
    page.write_text(saved(Path("recorded/keyed")))
    for width, dark in VIEWS:
        with Browser(width, dark=dark) as browser:
            browser.open(page.as_uri())
            browser.until("document.querySelector('#curve path')")
            browser.picture(place / f"page-{width}-{'dark' if dark else 'light'}.png")


if __name__ == "__main__":
    main()
