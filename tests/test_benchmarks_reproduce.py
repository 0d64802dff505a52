"""The reproduction of the paper: what it runs, stores and reports."""

from __future__ import annotations

import itertools
import json
import math
import re
import shutil
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import browser
import pandas as pd
import pytest
from click.testing import CliRunner, Result
from commands import ROOT
from pykeen.training import NonFiniteLossError
from typing_extensions import override

from benchmarks import reproduce, speed
from benchmarks.reproduction import paper, training
from benchmarks.reproduction.content import collect
from benchmarks.reproduction.examples import find_queries, read_labels
from benchmarks.reproduction.pages import escape_markdown, render_html, render_markdown
from benchmarks.reproduction.plan import LOOPS, PRESETS, REPORT_PARTS, Run, Training, plan_part
from benchmarks.reproduction.report import list_files, make_tables
from benchmarks.reproduction.results import Results
from benchmarks.reproduction.sections import Cell, Table
from benchmarks.reproduction.statistics import paired_test
from benchmarks.reproduction.storage import Storage
from benchmarks.reproduction.training import do

#: The directories of published reports, each with the names of entities that it was made with, if there were any
PUBLISHED = sorted((ROOT / "docs" / "reproduction").iterdir())
#: The heading under which the paper's main table stands, as an anchor
ACCURACY = "#accuracy-with-the-paper-s-settings"


def invoke(*args: str) -> Result:
    return CliRunner().invoke(reproduce.command, list(args))


@pytest.fixture
def program() -> str:
    """Find a browser."""
    return browser.find() or pytest.skip(f"needs a browser: one of {', '.join(browser.NAMES)}")


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the small version once, as continuous integration does and the documentation shows."""
    page = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    assert "    python -m benchmarks reproduce --quick\n" in page
    directory = tmp_path_factory.mktemp("quick")
    result = invoke("--quick", "--output", str(directory))
    assert result.exit_code == 0, result.output
    assert re.search(r"\[30/30\] .* about 0 s left", result.output)
    return directory


class TestQuick:
    def test_all_parts_are_there(self, quick: Path) -> None:
        preset = PRESETS["quick"]
        runs = pd.read_csv(quick / "runs.csv")
        assert set(runs["loop"]) == set(LOOPS)
        assert runs["failure"].isna().all()
        accuracy = pd.read_csv(quick / "accuracy.csv")
        assert len(accuracy) == len(preset.models) * len(LOOPS)
        assert (accuracy["seeds"] == preset.seeds).all()
        for metric in paper.REPORTED_METRICS:
            assert accuracy[f"{metric} std"].notna().all()
        # there is nothing to compare sampling with itself
        assert accuracy["MRR p"].notna().tolist() == [loop != "slcwa" for loop in accuracy["loop"]]
        assert set(pd.read_csv(quick / "dimension.csv")["dim"]) == set(preset.dims)
        assert set(pd.read_csv(quick / "weight.csv")["negative_weight"]) == set(preset.weights)
        assert set(pd.read_csv(quick / "quality.csv")["loop"]) == set(LOOPS)
        assert len(pd.read_csv(quick / "time.csv")) == len(preset.models)
        assert set(pd.read_csv(quick / "examples.csv")["loop"]) == set(LOOPS)
        # nothing else than what is checked before it would be overwritten
        assert {path.name for path in quick.iterdir()} <= {"settings.json", "runs.jsonl", *list_files(["nations"])}
        for name in ("accuracy", "stability", "time", "dimension", "weight", "quality_nations"):
            assert (quick / f"{name}.png").read_bytes().startswith(b"\x89PNG")
            assert "<svg" in (quick / f"{name}.svg").read_text(encoding="utf-8")

    def test_only_sampling_adds_chance(self, tmp_path: Path) -> None:
        """With a budget that lets sampling do all epochs on a slow machine, too: after one, all ranks may be the same."""
        result = invoke("--quick", "--part=stability", "--model=DistMult", "--budget=1", "--output", str(tmp_path))
        assert result.exit_code == 0, result.output
        table = pd.read_csv(tmp_path / "stability.csv")
        same = table[table["initial_vectors"] == "the same"].set_index("loop")["range"]
        assert same["nonsampling"] == 0
        assert same["slcwa"] > 0

    def test_what_ended_early_is_marked(self, quick: Path) -> None:
        runs, text = pd.read_csv(quick / "runs.csv"), (quick / "report.md").read_text(encoding="utf-8")
        assert "*Nations, 201 test triples*" in text
        assert not runs[runs["loop"] != "slcwa"]["stopped"].any()
        assert runs["stopped"].any() == (" of 20 † |" in text)

    @pytest.mark.parametrize("number", [1, 2, 7])
    def test_report_of_a_part_of_it(self, number: int, quick: Path, tmp_path: Path) -> None:
        lines = (quick / "runs.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
        shutil.copy(quick / "settings.json", tmp_path)
        (tmp_path / "runs.jsonl").write_text("".join(lines[:number]), encoding="utf-8")
        results = Results(Storage.load(tmp_path), {}, {})
        text = render_markdown(collect(results))
        assert f"| accuracy | 12 | {number} |" in text
        assert "## Time to quality\n\nNot run." in text
        assert len(make_tables(results)["runs"]) == number

    def test_no_number_of_the_paper_without_its_name(self, quick: Path) -> None:
        """The paper has none for this graph."""
        text = (quick / "report.md").read_text(encoding="utf-8")
        rows = [line for line in text.splitlines() if line.startswith("|") and paper.CITATION in line]
        assert all(row.startswith("| model |") for row in rows), rows

    def test_in_a_browser(self, program: str, quick: Path, tmp_path: Path) -> None:
        values = f"[...document.querySelectorAll('{ACCURACY} tbody tr')].map(row => Number(row.cells[2].dataset.value))"
        header = f"{ACCURACY} thead th:nth-child(3)"
        with browser.browse(program, tmp_path / "profile") as page:
            for width in (1280, 390):
                page.open(quick / "report.html", width)
                assert page.evaluate("document.title").startswith("Efficient non-sampling")
                # tables scroll, but the page does not
                assert page.evaluate("document.documentElement.scrollWidth") == width
                assert page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
                before = page.evaluate(values)
                assert len(before) == 6
                page.click(f"{header} button")
                assert page.evaluate(values) == sorted(before)
                assert page.evaluate(f"document.querySelector('{header}').ariaSort") == "ascending"
                page.click(f"{header} button")
                assert page.evaluate(values) == sorted(before, reverse=True)
                # by text, and only the last column that was clicked is marked
                page.click(f"{ACCURACY} thead th:nth-child(2) button")
                loops = page.evaluate(
                    f"[...document.querySelectorAll('{ACCURACY} tbody tr')].map(x => x.cells[1].textContent)"
                )
                assert loops == sorted(loops)
                assert page.evaluate(f"document.querySelectorAll('{ACCURACY} [aria-sort]').length") == 1
                assert page.errors() == []

    def test_the_test_sees_errors_of_a_page(self, program: str, tmp_path: Path) -> None:
        path = tmp_path / "bad.html"
        path.write_text("<script>console.error('one'); missing();</script>")
        with browser.browse(program, tmp_path / "profile") as page:
            page.open(path, 1280)
            assert len(page.errors()) == 2


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Do nothing, but remember what should have been done."""
    done: list[Run] = []

    def pretend(run: Run) -> dict[str, Any]:
        done.append(run)
        if not isinstance(run, Training):
            return {"parameters": {}, "curves": [[{"training seconds": 1.0, "MRR": 0.5}]]}
        found = {"predicted": ["uk", "usa"], "true": ["uk"]} if run.query else {}
        metrics = {metric: 0.1 * (1 + run.seed) + 0.01 * LOOPS.index(run.loop) for metric in paper.REPORTED_METRICS}
        return {**metrics, "seconds": 1.0, "epochs": run.epochs, "stopped": False, "ranked": 201, **found}

    monkeypatch.setattr(reproduce, "do", pretend)
    monkeypatch.setattr(reproduce, "warm_up", lambda run: None)
    monkeypatch.setattr(reproduce, "write_report", lambda results, directory: [])
    return done


class TestGoingOn:
    def test_after_an_interruption(self, fake: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pretend: Callable[[Run], dict[str, Any]] = reproduce.do

        def interrupted(run: Run) -> dict[str, Any]:
            if len(fake) == 3:
                raise KeyboardInterrupt
            return pretend(run)

        options = ["--quick", "--part", "accuracy", "--output", str(tmp_path)]
        monkeypatch.setattr(reproduce, "do", interrupted)
        result = invoke(*options)
        assert result.exit_code == 0, result.output
        assert "9 runs are left. Run the same command again to go on." in result.output
        # killed while it wrote the next line
        with (tmp_path / "runs.jsonl").open("a") as file:
            file.write('{"run": {"kind": "trai')
        monkeypatch.setattr(reproduce, "do", pretend)
        result = invoke(*options)
        assert "12 runs for accuracy, 3 of them done before." in result.output
        assert len(fake) == len({run.key for run in fake}) == 12
        assert len((tmp_path / "runs.jsonl").read_text().splitlines()) == 12
        assert "left. Run" not in result.output

    def test_parts_share_runs(self, fake: list[Run], tmp_path: Path) -> None:
        for part in REPORT_PARTS:
            assert invoke("--quick", "--part", part, "--output", str(tmp_path)).exit_code == 0
        assert len(fake) == len({run.key for run in fake})
        number = len(fake)
        assert invoke("--quick", "--output", str(tmp_path)).exit_code == 0
        assert len(fake) == number

    def test_until_the_time_is_over(self, fake: list[Run], tmp_path: Path) -> None:
        result = invoke("--quick", "--minutes", "1e-9", "--output", str(tmp_path))
        assert result.exit_code == 1
        assert "The 1e-09 minutes are over." in result.output
        assert "No run is finished" in result.output

    def test_with_other_settings(self, fake: list[Run], tmp_path: Path) -> None:
        options = ["--quick", "--part", "weight", "--output", str(tmp_path)]
        assert invoke(*options).exit_code == 0
        result = invoke(*options, "--seeds", "3", "--model", "complex")
        assert result.exit_code == 2
        message = " ".join(result.output.split())
        assert "seeds is 2 there, and 3 here" in message
        assert 'models is ["DistMult", "TransE"] there, and ["ComplEx"] here' in message
        before = len(fake)
        assert invoke(*options, "--model", "complex", "--force").exit_code == 0
        assert {run.model for run in fake[before:]} == {"ComplEx"}
        assert len(Storage.load(tmp_path).records) == len(fake) - before

    @pytest.mark.parametrize("name", ["report.md", "accuracy.csv", "quality_nations.svg"])
    def test_files_of_others_are_kept(self, name: str, fake: list[Run], tmp_path: Path) -> None:
        (tmp_path / name).write_text("mine")
        result = invoke("--quick", "--output", str(tmp_path))
        assert result.exit_code == 2
        assert f"{name} exists already" in " ".join(result.output.split())
        assert (tmp_path / name).read_text() == "mine"
        assert fake == []

    def test_damaged_runs(self, fake: list[Run], tmp_path: Path) -> None:
        options = ["--quick", "--part", "weight", "--output", str(tmp_path)]
        assert invoke(*options).exit_code == 0
        lines = (tmp_path / "runs.jsonl").read_text().splitlines(keepends=True)
        (tmp_path / "runs.jsonl").write_text(lines[0] + "oops\n" + "".join(lines[2:]))
        result = invoke(*options)
        assert result.exit_code == 1
        assert "runs.jsonl, line 2 is not a run" in " ".join(result.output.split())


class TestQueries:
    def test_by_names_of_ones_own(self, fake: list[Run], tmp_path: Path) -> None:
        labels = tmp_path / "labels.tsv"
        labels.write_text("uk\tUnited Kingdom\nusa\tUnited States\n")
        options = ["--quick", "--part", "examples", "--labels", str(labels), "--output", str(tmp_path / "out")]
        result = invoke(*options, "--query", "United Kingdom", "embassy", "?", "--query", "?", "embassy", "usa")
        assert result.exit_code == 0, result.output
        assert {run.query for run in fake if isinstance(run, Training)} == {
            ("uk", "embassy", None),
            (None, "embassy", "usa"),
        }
        # the report goes on to show them
        before = len(fake)
        assert invoke(*options).exit_code == 0
        assert len(fake) == before

    @pytest.mark.parametrize(
        ("query", "message"),
        [
            (("uk", "embassy", "usa"), "uk embassy usa is not a query to nations: write HEAD RELATION ?"),
            (("?", "embassy", "?"), "? embassy ? is not a query"),
            (("atlantis", "embassy", "?"), "atlantis embassy ? is not a query"),
            (("uk", "likes", "?"), "uk likes ? is not a query"),
        ],
    )
    def test_bad_ones(self, query: tuple[str, str, str], message: str, fake: list[Run], tmp_path: Path) -> None:
        result = invoke("--quick", "--part", "examples", "--query", *query, "--output", str(tmp_path))
        assert result.exit_code == 1
        assert message in " ".join(result.output.split())
        assert fake == []

    def test_bad_labels(self, fake: list[Run], tmp_path: Path) -> None:
        labels = tmp_path / "labels.tsv"
        labels.write_text("uk\tUnited Kingdom\nusa\n")
        result = invoke("--quick", "--labels", str(labels), "--output", str(tmp_path / "out"))
        assert result.exit_code == 1
        assert "labels.tsv, line 2: write the entity" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--dataset", "nowhere"], "PyKEEN has no dataset 'nowhere'"),
        (["--model", "Complx"], "Did you mean ComplEx"),
        (["--model", "ConvE"], "ConvEInteraction cannot be decomposed"),
        (["--part", "nothing"], "'nothing' is not one of"),
        (["--budget", "nan"], "nan is not a finite number > 0"),
        (["--output", str(Path(__file__) / "out")], "cannot be written to"),
    ],
)
def test_bad_input(args: list[str], message: str, tmp_path: Path) -> None:
    result = invoke("--quick", "--output", str(tmp_path / "out"), *args)
    assert result.exit_code != 0
    assert message in " ".join(result.output.split())
    # said by click, and not raised
    assert isinstance(result.exception, SystemExit)
    assert not (tmp_path / "out").exists()


def test_sampling_ends_within_an_epoch() -> None:
    run = Training("umls", "DistMult", "slcwa", seed=0, dim=4, epochs=3, learning_rate=0.01, budget=1e-9)
    result = do(run)
    assert result["stopped"]
    # one of two batches
    assert result["epochs"] == 0.5
    assert 0 < result["MRR"] < 1


def test_configurations_are_run_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [x for x in plan_part("shipped", PRESETS["gpu"], {}) if isinstance(x, Training) and x.seed == 0]
    assert len(runs) == 4 * 2 * 2
    given: dict[str, Any] = {}

    def pipeline(**kwargs: Any) -> None:
        given.update(kwargs)
        raise NonFiniteLossError

    monkeypatch.setattr(training, "pipeline", pipeline)
    monkeypatch.setattr(training, "load_graph", lambda name, inverse: {"dataset": name, "create_inverse_triples": inverse})
    for run in runs:
        do(run)
        content = json.loads((ROOT / "pykeen_nonsampling" / "experiments" / str(run.configuration)).read_text())["pipeline"]
        assert given["dataset"] == content.pop("dataset_kwargs")
        assert content.pop("dataset") == "allentities"
        del (
            given["training_kwargs"]["callbacks"],
            given["training_kwargs"]["use_tqdm"],
            given["training_kwargs"]["use_tqdm_batch"],
        )
        assert {name: given[name] for name in content} == content


def test_paired_test() -> None:
    these, those = [0.3, 0.4, 0.6], [0.1, 0.3, 0.3]
    # differences 0.2, 0.1, 0.3: t = 0.2 / (0.1 / √3) with two degrees of freedom, whose distribution is known
    t = 2 * math.sqrt(3)
    assert paired_test(these, those) == pytest.approx(1 - t / math.sqrt(2 + t**2))
    assert math.isnan(paired_test([0.1], [0.2]))
    assert math.isnan(paired_test([0.1, 0.2], [0.1, 0.2]))


def test_presets_plan_what_the_paper_has() -> None:
    runs = [x for x in plan_part("accuracy", PRESETS["gpu"], {}) if isinstance(x, Training)]
    assert len(runs) == len({run.key for run in runs}) == 4 * 2 * 3 * 5
    assert {(run.dim, run.epochs, run.learning_rate, run.budget) for run in runs} == {(200, 2000, 1e-4, None)}
    assert {run.negative_weight for run in runs if run.loop != "slcwa"} == {1e-3}
    dims = {run.dim for run in plan_part("dimension", PRESETS["gpu"], {})}
    assert dims == set(paper.DIMENSIONS)
    short = [x for x in plan_part("accuracy", PRESETS["cpu"], {}) if isinstance(x, Training)]
    assert all(run.learning_rate and math.isclose(run.epochs * run.learning_rate, 2000 * 1e-4) for run in short)
    assert {run.budget is None for run in short if run.loop == "slcwa"} == {False}


def test_numbers_of_the_paper_agree_with_each_other() -> None:
    for model, (sampled, without) in paper.SECONDS["fb15k237"].items():
        assert sampled / without == pytest.approx(speed.PAPER_SPEEDUPS[model.lower()], abs=0.05)
    for dataset, models in paper.ACCURACY.items():
        for model, (_, accuracy) in models.items():
            for sweep in paper.SWEEPS.values():
                curves = sweep.curves[dataset][model]
                assert {len(curve) for curve in curves.values()} == {len(sweep.values)}
                # the same settings, in a table and two figures
                assert min(abs(x - accuracy.mrr) for x in curves["MRR"]) < 0.011


class Elements(HTMLParser):
    """Collects what is on a page."""

    def __init__(self, page: str):
        super().__init__()
        #: how many elements there are of each kind
        self.numbers: Counter[str] = Counter()
        self.addresses: list[str | None] = []
        #: what is between two tags
        self.texts: set[str] = set()
        self.feed(page)

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.numbers[tag] += 1
        self.addresses += [value for name, value in attrs if name in ("href", "src")]

    @override
    def handle_data(self, data: str) -> None:
        self.texts.add(" ".join(data.split()))


class TestNames:
    """Names of entities, which come from users' files, stay text in a report."""

    names = (
        "a | b",
        "<script>alert(1)</script>",
        '" onclick="alert(1)',
        "[here](https://example.org)",
        "https://example.org and www.example.org",
        "<https://example.org>",
        "![x](y.png)",
        "`code` and {ref}`role`",
        "**bold** _italic_ ~~gone~~",
        "$x$",
        r"\`code\`",
        "&lt;b&gt;",
        "{{ 7 * 7 }}{% raw %}",
        "two\nlines",
    )

    #: the pictures of the report
    pictures = dict.fromkeys(("accuracy", "stability", "time", "dimension", "weight", "quality_umls"), b"<svg/>")

    def collect(self, *names: str) -> dict[str, Any]:
        """Collect the content of a report in which the entity that is asked for and those that are predicted have names."""
        storage = Storage.load(ROOT / "docs" / "reproduction" / "umls")
        queries = find_queries(storage.records.values())
        shown = {x for some in queries.values() for query in some for x in query if x is not None}
        shown |= {x for record in storage.records.values() for x in record.result.get("predicted", [])}
        assert len(shown) >= len(names)
        return collect(Results(storage, queries, dict(zip(sorted(shown), itertools.cycle(names), strict=False))))

    def check(self, page: str, usual: str) -> None:
        found, expected = Elements(page), Elements(usual)
        assert found.addresses == expected.addresses
        assert found.numbers == expected.numbers
        for name in self.names:
            # also within a caption
            assert any(" ".join(name.split()) in text for text in found.texts), name

    def test_html(self) -> None:
        self.check(*(render_html(self.collect(*names), self.pictures) for names in (self.names, ())))

    def test_markdown(self) -> None:
        markdown_it = pytest.importorskip("markdown_it")
        parser = markdown_it.MarkdownIt("commonmark").enable(["table", "strikethrough"])
        self.check(*(parser.render(render_markdown(self.collect(*names))) for names in (self.names, ())))


def test_what_markdown_would_take_for_markup() -> None:
    assert escape_markdown("a | <b> [c](d) *e* _f_ `g` $h$") == r"a \| \<b\> \[c\](d) \*e\* \_f\_ \`g\` \$h\$"
    assert escape_markdown("see: https://example.org, www.example.org") == r"see: https\://example.org, www\.example.org"
    assert escape_markdown("0.5 ± 0.1") == "0.5 ± 0.1"


def test_cells() -> None:
    content = TestNames().collect()
    rows = [[Cell("a"), Cell("0.5 *", 0.5, muted=True)], [Cell("c", bold=True), Cell("", muted=True)]]
    content["overview"] = {"table": Table(["n", "m < 2"], rows, "A & B"), "failures": ["it is <nan>"]}
    page, text = render_html(content, TestNames.pictures), render_markdown(content)
    assert '<tr><th scope="row">a</th><td data-value="0.5" class="muted number">0.5 *</td></tr>' in page
    assert '<tr><th scope="row"><strong>c</strong></th><td class="muted"></td></tr>' in page
    assert '<caption>A &amp; B</caption>\n<thead><tr><th scope="col"><button type="button">n</button></th>' in page
    assert "<p>A run failed: it is &lt;nan&gt;</p>" in page
    assert "*A \\& B*\n\n| n | m \\< 2 |\n|---|---|\n| a | *0.5 \\** |\n| **c** |  |\n\n" in text
    assert "\n\nA run failed: it is \\<nan\\>\n\n" in text


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda path: path.name)
def test_published_report_is_current(published: Path, tmp_path: Path) -> None:
    for name in ("settings.json", "runs.jsonl"):
        shutil.copy(published / name, tmp_path)
    storage, labels = Storage.load(tmp_path), read_labels(published.glob("labels.tsv"))
    text = render_markdown(collect(Results(storage, find_queries(storage.records.values()), labels)))
    assert text == (published / "report.md").read_text(encoding="utf-8"), "run the command in the documentation again"
    assert json.loads((published / "settings.json").read_text())["settings"]["preset"] in PRESETS
