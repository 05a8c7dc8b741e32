"""The page of a zoo, in a real browser, and the other drawings of a report."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from archives import add_bad_files, archive, make_zoo
from conftest import REQUIRED
from mutcanon import _batch, _drawing, _page
from mutcanon import archive as archives
from mutcanon._chains import chains, others

HOSTILE = '</script><img src=x onerror="window.broken=1"> \u2028 "&amp;'


def outcome(name: str, file: str | None = None, **fields: Any) -> _batch.Outcome:
    """What a check of one of tests/data finds."""
    path = Path(__file__).parent / "data" / f"{name}.pt2"
    unit = _batch.Unit(file or f"{name}.pt2", str(path), None, 0)
    found = _batch.run_unit(unit, _batch.Settings("check", **fields))
    assert found.models, found.message
    return found


def report(name: str, form: Any = "portable", tmp: Path | None = None) -> Any:
    (model, *_) = archives.analyze(Path(__file__).parent / "data" / f"{name}.pt2", form=form).models
    return model.report


# What is drawn


def test_a_chain_leads_from_the_target_to_the_producer() -> None:
    (chain,) = chains(report("redundant"))
    assert (chain.kind, chain.target, chain.producer) == ("user_input", "args_0", "add")
    assert [(c.node, c.decision) for c in chain.copies] == [
        ("copy_1", "collapse"),
        ("copy", "collapse"),
    ]
    assert others(report("redundant")) == ()


def test_a_chain_knows_order_ring_and_who_reads_what() -> None:
    first, second = chains(report("swap", "minimal"))
    assert {first.place, second.place} == {1, 2}
    assert first.is_saved or second.is_saved or first.reads or second.reads
    kept = chains(report("swap"))
    assert [c.decision for chain in kept for c in chain.copies] == ["insert"]


@pytest.mark.parametrize(
    "name", ["redundant", "cast", "swap", "delay-line", "transposed", "shared"]
)
@pytest.mark.parametrize("form", ["portable", "minimal"])
def test_every_drawing_shows_every_target_and_copy(name: str, form: Any) -> None:
    made = report(name, form)
    names = {m.target for m in made.mutations} | {
        c.node for c in made.copies if c.decision == "keep"
    }
    for draw in (_drawing.text, _drawing.graphviz, _drawing.mermaid, _drawing.fragment):
        drawn = draw(made)
        assert all(n in drawn for n in names)
    for finding in made.findings:
        assert finding.code in _drawing.text(made)


def test_text_says_what_goes_what_stays_and_why() -> None:
    drawn = _drawing.text(report("cast"))
    assert drawn.count("✗") == 3  # two copies and the key
    assert "● copy ◂─ args_1" in drawn
    assert "copy stays: cast" in drawn


def test_graphviz_takes_hostile_names() -> None:
    quoted = _drawing._quoted('a"b\\c\nd')
    assert quoted == '"a\\"b\\\\c\\nd"'
    assert "#34;" in _drawing._escaped('a"b')


def test_model_explorer_gets_a_value_for_each_copy() -> None:
    data = json.loads(_drawing.model_explorer(report("redundant")))
    results = data["graph"]["results"]
    assert set(results) == {"copy", "copy_1", "add"}
    assert results["copy"]["value"] == 16
    assert all(re.fullmatch("#[0-9a-f]{6}", r["bgColor"]) for r in results.values())


def test_a_notebook_shows_the_drawing() -> None:
    shown = report("cast")._repr_html_()
    assert "<s>copy_1</s>" in shown
    assert "stays: cast" in shown


# The commands


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    code = "import sys; sys.modules['torch'] = None; from mutcanon.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True
    )


def test_report_makes_a_page_without_torch(tmp_path: Path) -> None:
    make_zoo(tmp_path / "zoo", 16)
    add_bad_files(tmp_path / "zoo")
    page = tmp_path / "report.html"
    done = run("report", tmp_path / "zoo", "-o", page)
    assert done.returncode == 2  # there are failures, and the page shows them
    rows = data_of(page.read_text())["rows"]
    assert len(rows) > 16
    assert {row["status"] for row in rows} == {"clean", "found", "foreign", "failed"}


@pytest.mark.parametrize(
    "command", [("check",), ("rewrite", "-o", "out"), ("rewrite", "--dry-run", "-o", "out")]
)
def test_batches_make_a_page_too(command: tuple[str, ...], tmp_path: Path) -> None:
    model, page = tmp_path / "model.pt2", tmp_path / "report.html"
    model.write_bytes(archive("redundant"))
    arguments = [str(tmp_path / a) if a == "out" else a for a in command]
    done = run(*arguments, model, "--report", page)
    assert "Traceback" not in done.stderr
    (row,) = data_of(page.read_text())["rows"]
    assert (row["before"], row["after"], row["saved"]) == (2, 0, 32)


@pytest.mark.parametrize("shape", ["text", "json", "graphviz", "mermaid"])
def test_explain_has_formats(shape: str, tmp_path: Path) -> None:
    model = tmp_path / "model.pt2"
    model.write_bytes(archive("redundant"))
    done = run("explain", model, "--format", shape)
    assert (done.returncode, done.stderr) == (0, "")
    assert "copy_1" in done.stdout


def test_explain_asks_which_of_several(tmp_path: Path) -> None:
    model, data = tmp_path / "models.pt2", tmp_path / "data.json"
    model.write_bytes(archive("two-models"))
    assert "decode" in run("explain", model).stdout
    done = run("explain", model, "--format", "mermaid")
    assert done.returncode == 2
    assert "--model: " in done.stderr
    assert run("explain", model, "--model", "decode", "--model-explorer", data).returncode == 0
    assert "graph" in json.loads(data.read_text())
    assert "prefill" in run("explain", model, "--model", "none").stderr


# The page itself


def data_of(page: str) -> Any:
    (text,) = re.findall(
        r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL
    )
    return json.loads(text)


def test_hostile_names_end_nothing() -> None:
    page = _page.build([outcome("swap", HOSTILE)], HOSTILE)
    data = data_of(page)
    assert data["title"] == data["rows"][0]["file"] == HOSTILE
    assert page.count("</script>") == 2
    assert "http:" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https:" not in page


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        if "chromium" in REQUIRED:
            pytest.fail("chromium is not installed, but MUTCANON_REQUIRE names it")
        pytest.skip("needs chromium")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Opens the page of some outcomes; it must neither complain nor ask for anything."""
    opened, trouble = [], []

    def open_page(outcomes: list[_batch.Outcome], fragment: str = "", **options: Any) -> Any:
        path = tmp_path / "report.html"
        path.write_text(_page.build(outcomes, "zoo"), encoding="utf-8")
        page = browser.new_page(**options)
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("console", lambda message: trouble.append(message.text))
        page.on("request", lambda r: r.url.startswith(("file:", "data:")) or trouble.append(r.url))
        page.goto(path.as_uri() + fragment)
        opened.append(page)
        return page

    yield open_page
    for page in opened:
        page.close()
    assert trouble == []


def files(page: Any) -> list[str]:
    return page.eval_on_selector_all("#rows tr", "rows => rows.map(r => r.cells[0].textContent)")


SOME = ("redundant", "cast", "swap", "canonical", "delay-line")


def test_the_table_sorts_and_filters(show: Any) -> None:
    page = show([outcome(name) for name in SOME])
    assert files(page) == [f"{name}.pt2" for name in SOME]
    page.click("th button[data-key=before]")
    assert page.get_attribute("th:has(button[data-key=before])", "aria-sort") == "descending"
    assert files(page)[0] == "cast.pt2"
    page.click("th button[data-key=file]")
    assert files(page) == sorted(f"{name}.pt2" for name in SOME)
    page.fill("#filter", "overwritten swap")
    assert files(page) == ["swap.pt2"]
    assert page.text_content("#shown") == "1 of 5 models"
    page.fill("#filter", "")
    page.select_option("#kind", "finding")
    assert set(files(page)) == {"swap.pt2", "delay-line.pt2"}


def test_the_keyboard_is_enough(show: Any) -> None:
    page = show([outcome(name) for name in SOME])
    page.keyboard.press("/")
    page.keyboard.type("pt2")
    page.keyboard.press("Tab")
    for _ in range(12):
        if page.evaluate("document.activeElement.tagName") == "TR":
            break
        page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.text_content("aside h2") == "cast.pt2"
    assert page.evaluate("document.activeElement.id") == "model"
    page.keyboard.press("Escape")
    assert page.text_content("aside") == ""
    assert page.evaluate("document.activeElement.textContent").startswith("cast.pt2")


def test_a_model_is_drawn_and_can_be_linked_to(show: Any) -> None:
    page = show([outcome(name) for name in SOME], "#cast.pt2")
    assert page.text_content("aside h2") == "cast.pt2"
    assert page.locator("svg g.collapse").count() == 2
    assert page.locator("svg g.keep").count() == 1
    assert "cast" in page.text_content("svg text.note")
    page.click("tbody tr:has-text('swap.pt2')")
    assert page.evaluate("decodeURIComponent(location.hash)") == "#swap.pt2"
    assert page.locator("svg g.insert").count() == 1
    assert page.locator(".finding").count() == 2


def test_the_order_of_writes_is_drawn(show: Any) -> None:
    page = show([outcome("swap", form="minimal")], "#swap.pt2")
    assert page.locator("svg circle").count() == 2
    assert page.locator("svg path.reads").count() >= 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_schemes_have_contrast(scheme: Any, show: Any) -> None:
    page = show([outcome(name) for name in SOME], "#swap.pt2", color_scheme=scheme)
    ratios = page.evaluate(CONTRAST)
    assert min(ratios.values()) >= 4.5, ratios
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before


CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const light = (color) => {
    canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((v) => {
      v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = {};
  const looked = "h1|h1 span|#totals span|td|.tag|footer|aside h2|.finding .soft".split("|");
  for (const selector of looked) {
    const element = document.querySelector(selector);
    let back = element;
    while (getComputedStyle(back).backgroundColor === "rgba(0, 0, 0, 0)") back = back.parentElement;
    const a = light(getComputedStyle(element).color);
    const b = light(getComputedStyle(back).backgroundColor);
    found[selector] = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  }
  return found;
}"""


def test_hostile_names_stay_text(show: Any) -> None:
    page = show([outcome("swap", HOSTILE)])
    page.click("tbody tr")
    assert page.text_content("aside h2") == HOSTILE
    assert page.evaluate("window.broken") is None
    assert page.locator("img").count() == 0


def test_thousands_of_models_stay_fluid(show: Any) -> None:
    made = [outcome(name) for name in SOME]
    many = [
        _batch.replace(made[i % len(made)], name=f"family-{i % 50}/model-{i}.pt2")
        for i in range(5000)
    ]
    page = show(many)
    assert page.text_content("#shown") == "5000 models"
    assert page.locator("#rows tr").count() <= 1000
    slowest = page.evaluate(
        """() => Math.max(...["model-49", "family-7/", "swap overwritten", ""].map((words) => {
            const box = document.getElementById("filter"), start = performance.now();
            box.value = words;
            box.dispatchEvent(new Event("input"));
            document.body.offsetHeight;  // the layout is part of it
            return performance.now() - start;
        }))"""
    )
    assert slowest < 100, f"{slowest} ms"
