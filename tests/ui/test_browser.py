"""The page in a real browser: it opens, updates, answers to keys and sliders, and asks nobody else."""

import json
import os
import shutil
from importlib.resources import files
from urllib.parse import quote

import httpx
import pytest
from browsers import Browser, found

from penstock.planner.plan import SourceGate, read_plan
from penstock.ui.snapshot import WIDEST

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
        browser.until(f"rows.has(here()) && document.getElementById('predicted').innerText !== {json.dumps(before)}", 30)
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


AXE = """axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']}).then((found) =>
    JSON.stringify(found.violations.map((one) => [one.id, one.nodes.map((node) => node.html.slice(0, 200))])))"""
LONG, HEBREW = "Elementwithaname" * 5, "ספירת" * 4


@pytest.fixture
def full(runs):
    """A run with all that is hard to show: a hundred elements, names of 80 letters and from right to left, dead letters."""
    run = runs / f"{HEBREW}-{'r' * 36}"
    shutil.copytree(runs / "keyed", run)
    manifest = json.loads((run / "manifest.json").read_text())
    topology = manifest["topology"]
    streams, elements, counter = topology["streams"], topology["elements"], topology["elements"][0]
    names = [f"{LONG[:77]}{number:03}" if number % 3 else f"{HEBREW}{number}" for number in range(100)]
    for number, name in enumerate(names):
        streams.append({**streams[1], "name": f"S{number}"})
        elements.append({**counter, "name": name, "inputs": ["Readings"], "emits": [f"S{number}"]})
        topology["sinks"].append({"name": f"Out{number}", "stream": f"S{number}"})
        manifest["groups"][name] = f"query{number % 5}"
    (run / "manifest.json").write_text(json.dumps({**manifest, "application": LONG}))
    record = json.loads((run / "batches-main.jsonl").read_text().splitlines()[-1])
    record["dead_lettered"] = record["elements"]["Counter"]["dead_letters"] = 1
    letter = {"stream": "Readings", "error": f"{LONG} {HEBREW}", "raw": LONG * 3, "element": None}
    (run / "dead-letters").mkdir(exist_ok=True)
    (run / "dead-letters" / "main-000000000060.jsonl").write_text(json.dumps(letter) + "\n")
    with (run / "batches-main.jsonl").open("a") as file:
        file.write(json.dumps({**record, "batch": record["batch"] + 1}) + "\n")
    return run


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 768, 1440])
def test_all_can_read_it(served, full, width, dark):
    """By axe-core: nothing on the pages is against WCAG 2.1, levels A and AA; and nothing is wider than the screen."""
    axe = (files("axe_core_python") / "axe.min.js").read_text()
    url = served()
    with Browser(width, dark=dark) as browser:
        for place in ("", "/runs/keyed", f"/runs/{quote(full.name)}"):
            browser.open(f"{url}{place}")
            browser.until("document.querySelector('#counts, table')")
            browser.get(f"{axe}; 0")
            assert json.loads(browser.get(AXE)) == []
            assert "not connected" not in browser.get("document.getElementById('state').innerText")
            assert browser.get("document.documentElement.scrollWidth") <= width


def test_the_list_shows_what_state_a_run_is_in_on_a_telephone(served, full):
    with Browser(360) as browser:
        browser.open(served())
        browser.until("document.querySelectorAll('td.word').length === 2")
        cells = browser.get("[...document.querySelectorAll('td.word')].map((cell) => cell.getBoundingClientRect().right)")
        assert max(cells) <= 360


def test_dead_letters_can_be_read_on_a_telephone(served, full):
    with Browser(360) as browser:
        browser.open(f"{served()}/runs/{quote(full.name)}")
        browser.until("document.querySelector('#letters td.text')")
        assert browser.get("document.querySelector('#letters td.text').getBoundingClientRect().width") > 200


def test_what_nobody_measured_is_not_shown(served, runs):
    ledger = runs / "keyed" / "batches-main.jsonl"
    ledger.write_text(ledger.read_text().splitlines(keepends=True)[0])
    page = httpx.get(f"{served()}/runs/keyed").text
    with Browser() as browser:
        browser.open(f"{served()}/runs/keyed")
        browser.until("document.getElementById('counts')")
        boxes = browser.get("[...document.querySelectorAll('.graph g[data-node] text')].map((text) => text.textContent)")
    assert WIDEST not in page
    assert not [text for text in boxes if "100 ms" in text]


def test_lines_are_told_apart_without_their_colours(served):
    with Browser() as browser:
        browser.open(f"{served()}/runs/keyed")
        browser.until("document.querySelector('.chart path')")
        styles = browser.get(
            "Array.from({length: 20}, (_, place) => { const one = styled(place); return one.colour + one.dash; })"
        )
        dashes = browser.get(
            "[...document.querySelector('.chart').querySelectorAll('path')].map((line) => "
            "line.getAttribute('stroke-dasharray'))"
        )
    assert len(set(styles)) == 20
    assert len(set(dashes)) == 3


def test_the_whole_page_can_be_walked_by_keyboard(served):
    with Browser() as browser:
        browser.open(f"{served()}/runs/keyed")
        browser.until("stops && document.querySelector('#curve path')", 90)
        wanted = browser.get(
            "[...document.querySelectorAll('a[href], input:not([disabled]), [tabindex=\"0\"]')].filter((one) => "
            "one.checkVisibility()).length"
        )
        reached = set()
        for _ in range(wanted + 2):
            browser.press("Tab")
            reached.add(
                browser.get(
                    "(() => { const one = document.activeElement; one.dataset.seen ||= String(Math.random()); return "
                    "one.dataset.seen; })()"
                )
            )
            assert browser.get(
                "document.activeElement === document.body || getComputedStyle(document.activeElement).outlineStyle !== 'none'"
            )
        assert len(reached) >= wanted


def test_a_stream_may_have_the_name_of_what_all_objects_inherit(served, runs):
    run = runs / "keyed"
    for file in (run / "manifest.json", run / "batches-main.jsonl", run / "progress.jsonl", run / "starts.jsonl"):
        file.write_text(file.read_text().replace('"Readings"', '"constructor"'))
    with Browser() as browser:
        browser.open(f"{served()}/runs/keyed")
        browser.until("document.getElementById('counts').innerText.includes('processed')")
        assert browser.get("document.querySelector('.graph g[data-node] text').textContent") == "constructor"
        assert "NaN" not in browser.get("document.body.innerText")
