"""Plans: chosen from recordings, written, edited, and obeyed or refused."""

import json
from dataclasses import replace

import msgspec
import pytest
from click.testing import CliRunner
from planner.queries import manifest, progress, written

from penstock import App, Event
from penstock.cli.main import cli
from penstock.engine import RunOptions
from penstock.errors import ConfigurationError, SourceError
from penstock.planner import Plan, Prices, Setting, Target, calibrate, make_plan, observe, read_plan
from penstock.planner.plan import SourceGate, digest
from penstock.planner.plan_page import plan_page


@pytest.fixture(scope="module")
def observation(tmp_path_factory):
    path = tmp_path_factory.mktemp("recorded")
    first, _ = progress(trigger=5, rate=1500, seed=2, seconds=300)
    second, _ = progress(trigger=1, rate=1000, seed=1)
    return observe(written(path / "a", first), written(path / "b", second), cores=2)


def test_a_bound_is_met_by_the_longest_trigger_that_does(observation):
    planning = make_plan(observation, Target("p95", 5.0))
    plan = planning.plan
    calibration = calibrate(observation)
    assert calibration.predict(Setting(trigger=plan.trigger_s)).band("p95")[1] <= 5.05
    assert calibration.predict(Setting(trigger=1.08 * plan.trigger_s)).band("p95")[1] > 5.0
    assert plan.expected["p95"]["value"] < 5.0
    assert plan.holds_to > plan.expected["rate"]


def test_prices_are_balanced_as_a_brute_force_does(observation):
    prices = Prices(holding=1.0, transfer=3000.0)
    chosen = make_plan(observation, prices).chosen
    calibration = calibrate(observation)
    grid = [prices.per_second(calibration.predict(Setting(trigger=step / 10), replicates=0)) for step in range(0, 100, 2)]
    assert prices.per_second(chosen) <= 1.02 * min(grid)


@pytest.mark.slow
def test_dear_micro_batches_are_rare(observation):
    cheap, dear = (make_plan(observation, Prices(1.0, price)).chosen for price in (100.0, 10_000.0))
    assert dear.batches_per_day < 0.5 * cheap.batches_per_day


def test_a_bound_that_cannot_be_met_says_what_can(observation):
    with pytest.raises(ConfigurationError, match=r"cannot be met.*best that a trigger can reach"):
        make_plan(observation, Target("p95", 0.2))


@pytest.mark.slow
def test_the_fewest_cores_are_the_fewest(observation):
    what_if = Setting(rate=14_000)
    cores = make_plan(observation, Target("p95", 3.0), what_if, fewest_cores=True).plan.cores
    assert cores > 2
    with pytest.raises(ConfigurationError, match="cannot be met"):
        make_plan(observation, Target("p95", 3.0), Setting(rate=14_000, cores=cores - 1))


def test_the_page_needs_no_other_file(observation):
    page = plan_page(make_plan(observation, Prices(1.0, 3000.0)), "a")
    assert "<svg" in page
    assert "<script" not in page
    assert "trigger_s" in page


# --- the file ---------------------------------------------------------------------------------------------------------


class Word(Event):
    text: str


def an_app(*, more=False):
    app = App("words")
    words = app.source("Words", Word)
    seen = app.stream("Seen", Word)

    @app.element(words, emits=seen)
    def see(word):
        yield seen(word.text)

    if more:

        @app.element(words, emits=seen, name="again")
        def again(word):
            yield seen(word.text)

    app.sink("Out", seen)
    return app.topology()


def a_plan(**given):
    return Plan(**{"application": "words", "topology": digest(an_app().describe()), "trigger_s": 2.0, **given})


def test_a_plan_is_read_as_it_was_written(tmp_path):
    plan = a_plan(sources={"Words": SourceGate(min_rows=10, max_delay_s=4.0)}, goal={"p95": 2.0}, holds_to=5.0)
    plan.write(tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == plan


def test_a_plan_becomes_the_options_of_a_run():
    plan = a_plan(sources={"Words": SourceGate(min_rows=10, max_delay_s=4.0)}, groups={"see": "first"})
    options = plan.applied(an_app(), RunOptions(sources={"Words": "generator:poisson?rate=5"}))
    assert options.trigger == 2.0
    assert options.groups == {"see": "first"}
    assert options.sources["Words"] == "generator:poisson?rate=5&min_rows=10&max_delay=4%20s"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"trigger_s": -1}, "trigger_s is -1.*0 or more"),
        ({"trigger_s": "often"}, "Expected `float`, got `str` - at `\\$.trigger_s`"),
        ({"triger_s": 1}, "unknown field `triger_s`"),
        ({"sources": {"Words": {"min_rows": 10, "max_rows": 5}}}, "min_rows 10 above max_rows 5"),
        ({"sources": {"Words": {"max_rows": 0}}}, "max_rows of source Words is 0"),
        ({"cores": 0}, "cores is 0"),
        ({"version": 7}, "version is 7"),
    ],
)
def test_a_plan_edited_into_nonsense_is_refused(tmp_path, change, said):
    plain = msgspec.to_builtins(a_plan())
    (tmp_path / "plan.json").write_text(json.dumps(plain | change))
    with pytest.raises(ConfigurationError, match=said):
        read_plan(tmp_path / "plan.json")


def test_what_is_no_json_or_missing_is_said(tmp_path):
    (tmp_path / "plan.json").write_text("{")
    with pytest.raises(SourceError, match="is no JSON"):
        read_plan(tmp_path / "plan.json")
    with pytest.raises(SourceError, match="cannot be read"):
        read_plan(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("plan", "options", "said"),
    [
        ({"application": "other"}, {}, "is of application other"),
        ({"application": None}, {}, "not Penstock's"),
        ({"topology": "0" * 16}, {}, "made for other code"),
        ({"sources": {"Wrds": {"min_rows": 2}}}, {}, "names source Wrds"),
        ({"sources": {"Words": {"min_rows": 2}}}, {"sources": {"Words": "text:words"}}, "text: has none"),
        ({}, {"trigger": 1.0}, "--trigger and a plan"),
        ({"cores": 64}, {"master": "local[2]"}, "for 64 cores, and local\\[2\\] has 2"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(plan, options, said):
    sources = {name: SourceGate(**gate) for name, gate in plan.get("sources", {}).items()}
    with pytest.raises(ConfigurationError, match=said):
        a_plan(**{**plan, "sources": sources}).applied(an_app(), RunOptions(**options))


def test_other_code_has_another_digest():
    assert digest(an_app().describe()) == digest(an_app().describe())
    assert digest(an_app().describe()) != digest(an_app(more=True).describe())


# --- the command line -------------------------------------------------------------------------------------------------


def said(*arguments):
    return CliRunner().invoke(cli, arguments, catch_exceptions=False, standalone_mode=False)


def test_plan_writes_what_others_rely_on(tmp_path):
    told, _ = progress(trigger=2.0)
    recorded = str(written(tmp_path / "progress.jsonl", told))
    answer = said("plan", recorded, "--p95", "5s", "-o", str(tmp_path / "plan.json"), "--html", str(tmp_path / "p.html"))
    assert "because" in answer.stdout
    assert read_plan(tmp_path / "plan.json").trigger_s > 2
    doubled = json.loads(said("plan", recorded, "--p95", "5s", "--what-if", "rate=2x", "--json").stdout)
    assert doubled["goal"] == {"p95": 5.0}
    assert doubled["expected"]["rate"] == pytest.approx(2000, rel=0.05)


def test_one_goal_is_needed(tmp_path):
    recorded = str(written(tmp_path / "progress.jsonl", progress()[0]))
    for wrong in ([], ["--p95", "2s", "--p99", "3s"], ["--holding-cost", "1"], ["--p95", "2s", "--holding-cost", "1"]):
        with pytest.raises(ConfigurationError, match=r"Give one (target|goal)"):
            said("plan", recorded, *wrong)


APP = """
from penstock import App, Event

class Word(Event):
    text: str

app = App("planned")
app.sink("Out", app.source("Words", Word))
"""


@pytest.mark.parametrize(
    ("flags", "said_so"),
    [
        (["--p95", "2s"], "--p95 belongs to --adapt"),
        (["--dry-run"], "--dry-run belongs to --adapt"),
        (["--adapt"], "Give one target"),
        (["--adapt", "--p95", "2s", "--trigger", "1s"], "--trigger fixes what --adapt is to choose"),
        (["--plan", "none.json"], "none.json cannot be read"),
    ],
)
def test_flags_that_do_not_go_together_are_refused_before_anything_runs(tmp_path, monkeypatch, flags, said_so):
    (tmp_path / "planned_words.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ConfigurationError, SourceError), match=said_so):
        said("run", "planned_words.py", "--source", "Words=text:words", *flags)
    assert not list(tmp_path.glob("runs/*"))


@pytest.mark.slow
def test_thresholds_and_delays_are_tried_together(observation):
    gated = replace(observation, manifest=manifest(sources={"Words": "generator:poisson?rate=5"}))
    planning = make_plan(gated, Prices(1.0, 3000.0))
    tried = {(one.setting.min_rows, one.setting.max_delay) for one in planning.tried if one.setting.min_rows}
    assert len({rows for rows, _ in tried}) >= 5
    assert len(tried) >= 20
    assert "by threshold and delay" in plan_page(planning, "a")
