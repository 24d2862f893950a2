"""Pictures of the page for the documents: of a run that is on, and of all runs, at three widths, light and dark.

Usage: screenshots.py [DIRECTORY]

The run is the one that the tests have recorded, played as if it came now. Needs Chromium.
"""

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from penstock.ui.server import Page, beside
from penstock.web.access import Access

HERE = Path(__file__).parent.parent
sys.path[:0] = [str(HERE / "tests"), str(HERE / "benchmarks")]

from browsers import Browser  # noqa: E402
from page import Player  # noqa: E402

WIDTHS = (1440, 768, 390)


def main() -> None:
    """Take them."""
    place = Path(sys.argv[1] if len(sys.argv) > 1 else HERE / "docs" / "images").absolute()
    with ExitStack() as stack:
        runs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name, begun in (("readings", 120), ("readings-west", 40)):
            player = Player(HERE / "tests" / "ui" / "recorded" / "keyed", runs / name, begun)
            player.start()
            stack.callback(player.stop)
        address = stack.enter_context(beside(Page(runs, Access()), "127.0.0.1", 0))
        for width in WIDTHS:
            for dark in (False, True):
                look = f"{width}-{'dark' if dark else 'light'}"
                with Browser(width, dark=dark) as browser:
                    browser.open(address)
                    browser.until("document.querySelector('main a')")
                    browser.picture(place / f"runs-{look}.png")
                    browser.open(f"{address}/runs/readings")
                    browser.until("stops && document.querySelector('#predicted a')", 120)
                    browser.get("document.querySelector('g[data-node=element_Counter]').dispatchEvent(new Event('click'))")
                    browser.until("document.querySelector('#element table')")
                    browser.picture(place / f"page-{look}.png")


if __name__ == "__main__":
    main()
