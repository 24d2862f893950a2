"""The page over HTTP: who may ask, what comes, and what it asks for itself."""

import json
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from penstock.cli.main import main
from penstock.web.access import Access


def embedded(html):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)[1])


def test_runs_and_a_run(served):
    url = served()
    [run] = embedded(httpx.get(url).text)["runs"]
    assert (run["name"], run["state"]) == ("keyed", "stopped")
    answer = httpx.get(f"{url}/runs/keyed")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    content = embedded(answer.text)
    assert content["run"]["counts"]["processed"] > 1000
    assert "data-node" in content["picture"]
    assert not re.search(r'(src|href)="https?://', answer.text)
    assert len(answer.content) < 200_000
    missing = httpx.get(f"{url}/runs/other")
    assert (missing.status_code, "there are keyed" in missing.text) == (404, True)


def test_news_come_as_they_are_committed(served, runs):
    url = served()
    with httpx.stream("GET", f"{url}/api/runs/keyed/events", timeout=20) as answer:
        lines = (line for line in answer.iter_lines() if line.startswith("data:"))
        first = json.loads(next(lines)[5:])
        ledger = runs / "keyed" / "batches-main.jsonl"
        last = json.loads(ledger.read_text().splitlines()[-1])
        with ledger.open("a") as file:
            file.write(json.dumps({**last, "batch": last["batch"] + 1}) + "\n")
        while True:
            found = json.loads(next(lines)[5:])
            if found["counts"]["processed"] > first["counts"]["processed"]:
                break


def test_two_pages_count_once(served, runs):
    url = served()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: httpx.get(f"{url}/api/runs/keyed", timeout=30).json(), range(24)))
    assert {one["counts"]["processed"] for one in found} == {121_569}


def test_what_is_no_run_is_left_out(served, runs):
    (runs / "foreign").mkdir()
    (runs / "foreign" / "manifest.json").write_text("[]")
    (runs / "keyed" / "spark.log").unlink()
    [run] = httpx.get(f"{served()}/api/runs").json()
    assert (run["name"], run["state"]) == ("keyed", "stopped")


def test_what_if_waits_for_the_models(served):
    url = served()
    httpx.get(f"{url}/runs/keyed")
    for _ in range(300):
        answer = httpx.get(f"{url}/api/runs/keyed/what-if", timeout=60)
        if answer.status_code == 200:
            break
        assert answer.status_code == 422
        time.sleep(0.1)
    found = answer.json()
    assert len(found["cells"]) == len(found["rates"])
    one = httpx.get(f"{url}/api/runs/keyed/what-if", params={"rate": 2, "min_rows": 1000, "max_delay": 5}, timeout=60).json()
    assert (one["asked"], one["min_rows"], len(one["cells"])) == ([2], 1000, 1)


@pytest.mark.parametrize(("asked", "said"), [("rate=fast", "a number is needed"), ("rate=17", "17 times the rate")])
def test_what_if_refuses_in_a_sentence(served, asked, said):
    url = served()
    test_what_if_waits_for_the_models(lambda: url)
    for what in ("what-if", "plan"):
        answer = httpx.get(f"{url}/api/runs/keyed/{what}?{asked}", timeout=60)
        assert (answer.status_code, said in answer.text) == (422, True)
    answer = httpx.get(f"{url}/api/runs/keyed/plan?trigger=1e9", timeout=60)
    assert (answer.status_code, "ask for one of" in answer.text) == (422, True)


def test_only_who_may_look(served):
    url = served(Access({"consume": ["let me in"], "produce": ["and me"]}))
    assert httpx.get(url).status_code == 401
    assert httpx.get(url, params={"token": "and me"}).status_code == 403
    entered = httpx.get(url, params={"token": "let me in"})
    assert entered.status_code == 200
    assert "httponly" in entered.headers["set-cookie"].lower()
    assert httpx.get(url, cookies={"penstock": "let me in"}).status_code == 200
    assert httpx.get(url, headers={"Authorization": "Bearer let me in"}).status_code == 200


def test_another_sites_name_that_leads_here_is_refused(served):
    assert httpx.get(served(), headers={"Host": "evil.example"}).status_code == 403
    assert httpx.get(served(hosts=("mine.example",)), headers={"Host": "mine.example"}).status_code == 200


def test_an_endless_head_is_cut_off_at_the_page_too(served):
    port = int(served().rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
        with pytest.raises(ConnectionError):
            connection.sendall(b"a" * 100_000_000)


def test_a_page_is_saved_as_one_file(runs, tmp_path, capsys):
    main(["ui", str(runs / "keyed"), "--save", str(tmp_path / "page.html")])
    content = embedded((tmp_path / "page.html").read_text())
    assert content["run"]["today"]["p95"] > 0
    assert content["surface"]["cells"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ui", "--host", "0.0.0.0"], "say who may ask with --tokens"),
        (["ui", "nowhere", "--save", "page.html"], "not the directory of a run"),
        (["ui", "foreign", "--save", "page.html"], "its manifest.json is of something else"),
    ],
)
def test_wrong_use_is_a_sentence(arguments, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "manifest.json").write_text("{}")
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_port_in_use_is_a_sentence(served, runs, capsys):
    port = served().rpartition(":")[2]
    with pytest.raises(SystemExit):
        main(["ui", str(runs), "--port", port])
    assert "stop what does, or choose another" in capsys.readouterr().err
