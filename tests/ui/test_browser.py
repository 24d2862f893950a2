"""The page in a real browser: it opens, updates, answers to keys and sliders, and asks nobody else."""

import json
import os

import pytest
from browsers import Browser, found

if found() is None and not os.environ.get("CI"):
    pytest.skip("Chromium is not installed (Debian: sudo apt-get install chromium).", allow_module_level=True)
pytestmark = pytest.mark.servers


@pytest.mark.parametrize(("width", "dark"), [(1440, False), (768, True), (390, False)])
def test_a_run_is_shown_at_every_width(served, width, dark):
    url = served()
    with Browser(width, dark=dark) as browser:
        browser.open(f"{url}/runs/keyed")
        browser.until("document.getElementById('counts').innerText.includes('processed')")
        assert browser.get("document.querySelector('.graph g[data-node] text').textContent") == "Readings"
        assert browser.get("document.querySelectorAll('.chart path').length") >= 5
        assert browser.get("document.documentElement.scrollWidth") <= width
        assert all(request.startswith(url) for request in browser.requests)
        background = browser.get("getComputedStyle(document.body).backgroundColor")
        assert background == ("rgb(20, 24, 29)" if dark else "rgb(255, 255, 255)")


def test_news_move_the_page(served, runs):
    with Browser() as browser:
        browser.open(f"{served()}/runs/keyed")
        before = browser.get("now.counts.processed")
        ledger = runs / "keyed" / "batches-main.jsonl"
        last = json.loads(ledger.read_text().splitlines()[-1])
        with ledger.open("a") as file:
            file.write(json.dumps({**last, "batch": last["batch"] + 1}) + "\n")
        browser.until(f"now.counts.processed > {before}")
        shown = browser.get("document.getElementById('counts').innerText.replaceAll(',', '')")
        assert str(browser.get("now.counts.processed")) in shown


def test_keys_choose_an_element_and_sliders_move_the_prediction(served):
    with Browser() as browser:
        browser.open(f"{served()}/runs/keyed")
        browser.get("document.querySelector('g[data-node=element_Counter]').focus()")
        browser.press("Enter")
        browser.until("document.getElementById('element').innerText.includes('instances')")
        browser.until("surface && surface.cells && document.querySelector('#curve path')", 90)
        before = browser.get("document.getElementById('predicted').innerText")
        browser.get(
            "(() => { const slider = document.getElementById('trigger'); slider.value = 10; slider.dispatchEvent(new Event('input')); })()"
        )
        assert browser.get("document.getElementById('predicted').innerText") != before
        assert browser.get("surface.cores") == 2
        browser.get(
            "(() => { const slider = document.getElementById('cores'); slider.value = 0; slider.dispatchEvent(new Event('input')); })()"
        )
        browser.until("surface.cores === 1 && document.getElementById('cores-shown').innerText.startsWith('1,')", 90)


def test_all_runs_lead_to_one(served):
    with Browser() as browser:
        browser.open(served())
        browser.get("document.querySelector('main a').click()")
        browser.until("location.pathname === '/runs/keyed' && document.getElementById('health')")
