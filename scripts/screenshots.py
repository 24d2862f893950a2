"""Pictures of the page for the documents, taken of the run that the tests have recorded; needs Chromium.

Usage: screenshots.py [DIRECTORY]
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent.parent
sys.path.insert(0, str(HERE / "tests"))

from browsers import Browser  # noqa: E402

from penstock.ui.server import saved  # noqa: E402

VIEWS = ((1440, False), (1440, True), (768, False), (390, True))

place = Path(sys.argv[1] if len(sys.argv) > 1 else HERE / "docs" / "images").absolute()
os.chdir(HERE / "tests" / "ui")  # a run's path is on its page
page = HERE / "build" / "page.html"
page.parent.mkdir(exist_ok=True)
page.write_text(saved(Path("recorded/keyed")))
for width, dark in VIEWS:
    with Browser(width, dark=dark) as browser:
        browser.open(page.as_uri())
        browser.until("document.querySelector('#curve path')")
        browser.picture(place / f"page-{width}-{'dark' if dark else 'light'}.png")
