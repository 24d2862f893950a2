"""The page in a real browser: it opens, updates, answers to keys and sliders, and asks nobody else."""

import json
import os

import httpx
import pytest
from browsers import Browser, found

from penstock.planner.plan import SourceGate, read_plan

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
        browser.until("stops && document.querySelector('#curve path')", 90)
        before = browser.get("document.getElementById('predicted').innerText")
        move(browser, "trigger", 10)
        assert browser.get("document.getElementById('predicted').innerText") != before
        assert browser.get("value('cores')") == 2
        before = browser.get("document.getElementById('predicted').innerText")
        move(browser, "cores", 0)
        browser.until(
            f"rows.has(here()) && document.getElementById('predicted').innerText !== {json.dumps(before)}", 30
        )
        assert browser.get("document.getElementById('cores-shown').innerText").startswith("1,")


def test_an_element_shows_its_dead_letters_and_the_command_that_replays_them(served, runs):
    letters = runs / "keyed" / "dead-letters"
    letters.mkdir(exist_ok=True)
    for element in ("Counter", "Other"):
        letter = {"element": element, "stream": "Readings", "event": {"key": 7}, "error": f"ValueError: of {element}"}
        (letters / f"{element}.jsonl").write_text(json.dumps(letter) + "\n")
    ledger = runs / "keyed" / "batches-main.jsonl"
    *others, last = ledger.read_text().splitlines()
    ledger.write_text("\n".join([*others, json.dumps({**json.loads(last), "dead_lettered": 2})]) + "\n")
    with Browser() as browser:
        browser.open(f"{served()}/runs/keyed")
        browser.get("document.querySelector('g[data-node=element_Counter]').dispatchEvent(new Event('click'))")
        browser.until("document.getElementById('element').innerText.includes('of Counter')")
        shown = browser.get("document.getElementById('element').innerText")
        assert "of Other" not in shown
        assert "--replay again.jsonl" in shown
        assert "of Other" in browser.get("document.getElementById('letters').innerText")


def test_a_partition_that_lags_is_named_and_a_source_shows_them_all(served, lag):
    lag({"0": 11_020, "1": 22_380})
    with Browser(390) as browser:
        browser.open(f"{served()}/runs/keyed")
        browser.until("document.getElementById('waits').innerText")
        waits = "Waiting at Readings: 12,400, of them 12,380 in partition 1 (measured, as of the last micro-batch)"
        assert browser.get("document.getElementById('waits').innerText") == waits
        browser.get("document.querySelector('g[data-node=source_Readings]').dispatchEvent(new Event('click'))")
        browser.until("document.getElementById('element').innerText.includes('99.8%')")
        cells = browser.get("[...document.querySelectorAll('#element td')].map((cell) => cell.innerText)")
        assert cells == ["1", "12,380", "99.8%", "0", "20", "0.2%"]
        assert browser.get("document.documentElement.scrollWidth") <= 390


def test_the_gate_moves_the_prediction_and_its_plan_can_be_written(served, tmp_path):
    url = served()
    with Browser() as browser:
        browser.open(f"{url}/runs/keyed")
        browser.until("stops && document.querySelector('#curve path')", 90)
        assert browser.get("slider('max_delay').disabled")
        move(browser, "trigger", 0)
        move(browser, "min_rows", browser.get("stops.thresholds.indexOf(5000)"))
        move(browser, "max_delay", browser.get("stops.delays.indexOf(5)"))
        browser.until("rows.has(here()) && document.querySelector('#predicted a')", 30)
        shown = browser.get("rows.get(here())[0]")
        address = browser.get("document.querySelector('#predicted a').href")
    answer = httpx.get(address, timeout=60)
    (tmp_path / "plan.json").write_text(answer.text)
    plan = read_plan(tmp_path / "plan.json")
    assert (plan.trigger_s, plan.sources) == (0.0, {"Readings": SourceGate(min_rows=5000, max_delay_s=5.0)})
    assert plan.expected["p95"]["value"] == pytest.approx(shown[1], rel=0.1)
    assert "keyed-plan.json" in answer.headers["content-disposition"]


def move(browser, name, stop):
    """Put a slider to one of its stops."""
    browser.get(f"(() => {{ slider('{name}').value = {stop}; slider('{name}').dispatchEvent(new Event('input')); }})()")


def test_all_runs_lead_to_one(served):
    with Browser() as browser:
        browser.open(served())
        browser.get("document.querySelector('main a').click()")
        browser.until("location.pathname === '/runs/keyed' && document.getElementById('health')")
