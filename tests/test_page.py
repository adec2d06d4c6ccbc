"""Promise: the workshop page shows what scripts and records say, in a real browser, and needs nothing but itself."""

import json
import re
import shutil
import subprocess

import pytest
from conftest import NAMES, PLAIN, ROOT, TEXT

from shared import UserError, exercises, lessons, report, side_by_side, stages
from shared.figures import size

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
RECORD = stages.records(stages.RESULTS / "tiny-cpu.jsonl")[0][0]
WRONG = [{"train": {**RECORD["train"], "device_peak_gb": peak}} for peak in (None, 0, -1, float("nan"), float("inf"), "big")]
WRONG += [{"stage": 1}, {"versions": []}, {"date": None, "versions": {}}, {"load": None}]
HOSTILE = "<img src=x onerror=document.title='taken'>"


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """The page with one more file of records, in which a name is code."""
    folder = tmp_path_factory.mktemp("page")
    odd = [{"device": HOSTILE, "dataset": HOSTILE}, {"script": "plain"}, {"stage": "99_mine", "test_accuracy": None}]
    (folder / "mine.jsonl").write_text("".join(json.dumps({**RECORD, **change}) + "\n" for change in odd))
    report.main(["--records", str(folder / "mine.jsonl"), "--out", str(folder)])
    return folder


@pytest.fixture(scope="module")
def browser():
    if not CHROMIUM:
        pytest.skip("no Chromium here: the page is not looked at in a browser")
    playwright = pytest.importorskip("playwright.sync_api")
    quiet = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    with playwright.sync_playwright() as p:
        started = p.chromium.launch(executable_path=CHROMIUM, args=quiet)
        yield started
        started.close()


@pytest.fixture
def visit(browser, out):
    """Opens the page; in the end it must not have complained, nor asked for anything."""
    contexts, said, asked = [], [], []

    def open_page(width=1280, height=900, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto((out / "index.html").as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []
    assert {url.partition(":")[0] for url in asked} <= {"file", "data"} and sum(url.startswith("file:") for url in asked) == len(contexts)


def test_one_file_and_pictures(out):
    html = (out / "index.html").read_text()
    assert len(html.encode()) <= 3_000_000
    assert not re.search(r"""(src|href)=["']?(https?:|//)|@import|url\(\s*["']?http""", html)
    assert len(list(out.glob("timeline-*.png"))) == len(NAMES + TEXT) and len(list(out.glob("bars-*.png"))) >= 3


def test_what_is_shown_is_what_was_recorded(out):
    html = (out / "index.html").read_text()
    predicted = lessons.predictions()
    for run in NAMES + TEXT:
        assert f'<article id="{run.replace("/", "-")}">' in html
        assert size(predicted[run]["train"]["device_peak_gb"]) in html
    for r in (predicted["01_baseline"], *stages.records(stages.RESULTS / "tiny-cpu.jsonl")[0]):
        assert f"{r['date']}, commit {r['git_commit']}" in html and r["device"].split(",")[0] in html


def test_timelines_are_of_the_predictions():
    moments = {m["run"]: m for m in json.loads(report.TIMELINES.read_text())}
    assert list(moments) == NAMES + TEXT
    for run, r in lessons.predictions().items():
        total = [sum(column) for column in zip(*moments[run]["device"].values())]
        assert max(total) == pytest.approx(r["train"]["device_peak_gb"] * 1e3, abs=0.1)
        number, unit = re.search(r">([\d.]+) (GB|MB), ", report.timelines()[run][0]).groups()
        assert float(number) * {"GB": 1e3, "MB": 1}[unit] == pytest.approx(max(total), rel=0.005)
        assert r["peak_at"]["train"]["module"] in report.timelines()[run][0]
        assert "#010203" not in report.timelines()[run][0] and "<script" not in report.timelines()[run][0]


def test_cards_are_of_the_models_in_the_repository():
    models = {model: rows for model, _, rows in report.cards()}
    assert {model.partition(" ")[0].rstrip(",") for model in models} >= {"vit_b_16", "vit_l_16", "vit_h_14", *lessons.text_records()}
    for rows in models.values():
        assert len(rows) >= 8 and rows[-1][2] < rows[0][2]


def test_without_records(monkeypatch, tmp_path):
    monkeypatch.setattr(lessons, "results", lambda: [])
    html, chosen = report.page([])
    assert [data["name"] for data in chosen] == ["vit_l_16 at 224 px, predicted for GPUs", "distilbert-base-uncased, 512 tokens, predicted for GPUs"]
    assert "What it costs" not in html and "Does it fit?" in html


@pytest.mark.parametrize("text, wrong", [(None, "there are no records in it"), ("", "there are no records in it"), ("{}\n", "there are no records in it"), ('{"stage": "01_baseline"}\n', "these are no records"), (b"\xff\xfe", "these are no records"), *((json.dumps({**RECORD, **change}), "these are no records") for change in WRONG)])
def test_files_that_are_no_records(tmp_path, text, wrong):
    file = tmp_path / "records.jsonl"
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=f"{wrong}.*pass what --record or the ladder has written"):
        report.parse(["--records", str(file), "--out", str(tmp_path)])


def test_a_folder_that_cannot_be_written():
    with pytest.raises(UserError, match="--out /proc/nowhere: .*choose another folder"):
        report.parse(["--out", "/proc/nowhere"])


def bare(html):
    return re.sub(r"<[^>]*>", "", html).replace("&#34;", '"').replace("&#39;", "'").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


@pytest.mark.parametrize("before, after", [("01_baseline/plain", "01_baseline"), *zip(NAMES, NAMES[1:]), ("07_init_module/plain", "08_fsdp/plain"), tuple(TEXT)])
def test_side_by_side_is_the_diff(before, after):
    old, new = (stages.path(run).read_text().splitlines() for run in (before, after))
    rows = side_by_side.rows(before, after)
    for kind, n, left, m, right in rows:
        assert (kind == "skipped") == (n is None and m is None)
        assert n is None or bare(left) == old[n - 1]
        assert m is None or bare(right) == new[m - 1]
        assert kind != "same" or old[n - 1] == new[m - 1]
        assert kind not in ("added", "removed", "changed") or (n and old[n - 1]) != (m and new[m - 1])
    gone = [n for kind, n, *_ in rows if kind in ("changed", "removed")]
    come = [m for kind, _, _, m, _ in rows if kind in ("changed", "added")]
    rest = [line for n, line in enumerate(old, 1) if n not in gone]
    assert rest == [line for m, line in enumerate(new, 1) if m not in come]  # nothing is left out
    assert sorted(gone) == gone and sorted(come) == come


def test_words_that_differ():
    old, new = "    precision='32-true',  # a", "        precision='bf16-mixed',  # a"
    spans = side_by_side.words(old, new)
    assert [[line[a:b] for a, b in side] for line, side in zip((old, new), spans)] == [["32", "true"], ["bf16", "mixed"]]
    assert side_by_side.together(["a = 1", "print(a)"], ["x = [2]", "a = 1.0", "print(a)"]) == [(None, 0), (0, 1), (1, 2)]
    assert side_by_side.together(["a", "b"], []) == [(0, None), (1, None)]


def test_chart(visit):
    page = visit()
    bars = page.locator(".dataset:not([hidden]) .bar")
    predicted = lessons.predictions()
    assert bars.count() == len(NAMES)

    def widths():
        return {run: page.locator(f".dataset:not([hidden]) .bar[data-run='{run}'] .stack").bounding_box()["width"] for run in NAMES[:6]}

    linear = widths()
    for run, width in linear.items():
        share = predicted[run]["train"]["device_peak_gb"] / predicted[NAMES[0]]["train"]["device_peak_gb"]
        assert width / linear[NAMES[0]] == pytest.approx(share, abs=0.01)
    page.get_by_label("logarithmic").check()
    assert widths()["06_sgd"] > 2 * linear["06_sgd"]
    assert page.locator(".dataset:not([hidden]) .published").count() == len(lessons.PUBLISHED)
    page.get_by_label("What").select_option(label=next(t for t in page.locator("#dataset option").all_inner_texts() if "vit_tiny" in t and "AMD" in t))
    assert page.locator(".dataset:not([hidden]) .peak").first.inner_text() == "117.2 MB"


def test_figures_by_keyboard_alone(visit):
    page = visit()
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.closest('.bar')?.dataset.run") == "06_sgd":
            break
    tip = page.locator(".dataset:not([hidden]) .bar[data-run='06_sgd'] .tip")
    assert tip.is_visible() and "published in 2023: 2.02 GB" in tip.inner_text() and "gradients 606.6 MB" in tip.inner_text()
    assert page.locator(".tip:visible").count() == 1
    page.keyboard.press("Enter")
    assert page.url.endswith("#06_sgd")
    page.locator("#theme").focus()
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    assert page.locator("#theme").inner_text() == "Theme: dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    unreachable = page.evaluate("[...document.querySelectorAll('a, button, select, input, summary')].filter(e => e.tabIndex < 0 && e.type !== 'radio').length")
    assert unreachable == 0


def test_switch_between_fabric_and_plain(visit):
    page = visit()
    stage = page.locator("article[id='02_mixed_precision']")
    assert "16-mixed" in stage.locator(".fabric").inner_text() and not stage.locator(".plain").is_visible()
    page.get_by_label("in plain PyTorch").check()
    assert "GradScaler" in stage.locator(".plain").inner_text() and not stage.locator(".fabric").is_visible()
    assert page.locator("article:has(.plain:visible)").count() == len(PLAIN) - 1 + 1  # of 02 to 10, and 11 says that it has none
    assert page.locator(".chain-name").inner_text() == "in plain PyTorch"


@pytest.mark.parametrize("first, second", [("03_bf16", "06_sgd"), ("06_sgd", "03_bf16"), ("04_batchsize", "05_grad_accum")])
def test_compare_any_two(visit, first, second):
    page = visit()
    page.locator("#from").select_option(first)
    page.locator("#to").select_option(second)
    compared = page.locator("#comparison")
    assert compared.locator(".bar").count() == 2
    earlier, later = sorted((first, second))
    assert compared.locator("thead").inner_text().split() == [earlier, later]
    assert compared.locator("ins", has_text="MICRO_BATCH_SIZE = 4").count() == 1
    page.get_by_label("in plain PyTorch").check()
    assert compared.locator("thead").inner_text().split() == [f"{earlier}/plain", f"{later}/plain"]
    page.locator("#from").select_option(second)
    assert compared.inner_text() == "Choose two different scripts."


def test_compare_takes_bars_where_there_are_some(visit):
    page = visit()
    for first, second, bars in (("11_llm/before", "11_llm/train", 2), ("01_baseline", "11_llm/train", 0)):
        page.locator("#from").select_option(first)
        page.locator("#to").select_option(second)
        assert page.locator("#comparison .bar").count() == bars and page.locator("#comparison ins").count() > 10
        assert ("11_llm/train: 162.3 MB" in page.locator("#said").inner_text()) == (bars == 2)


def test_a_touch_shows_figures_first(browser, out):
    context = browser.new_context(viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto((out / "index.html").as_uri())
    bar = page.locator(".dataset:not([hidden]) .bar[data-run='04_batchsize']")
    bar.locator("a").tap()
    assert bar.locator(".tip").is_visible() and "#" not in page.url
    bar.locator("a").tap()
    assert page.url.endswith("#04_batchsize")
    context.close()


def test_does_it_fit(visit):
    page = visit()
    for n, (model, _, rows) in enumerate(report.cards()):
        page.get_by_label("Model").select_option(str(n))
        for card in (8, 24, 141):
            page.get_by_label("Card").select_option(str(card))
            said = []
            for gpus in sorted({row[1] for row in rows}):
                needed = {name: needs for name, n, needs, _ in reversed(rows) if n == gpus}  # the first of a name is the last here
                names = [name for name, n, _, _ in rows if n == gpus]
                safe = [name for name in names if card - needed[name] >= 2]
                perhaps = [f"{name}, perhaps" for name in names if 0 <= card - needed[name] < 2]
                said.append(f"On {'one GPU' if gpus == 1 else f'{gpus} GPUs, each'} of {card} GB: {[*safe, *perhaps, 'none of these'][0]}.")
            assert page.locator("#verdict").inner_text() == " ".join(said)
            assert page.locator(".model:not([hidden]) .fits.no").count() == sum(needs > card for _, _, needs, _ in rows)


@pytest.mark.parametrize("width, scheme", [(360, "light"), (360, "dark"), (768, "light"), (1920, "dark")])
def test_nothing_runs_over(visit, width, scheme):
    page = visit(width, 740, scheme)
    page.get_by_label("in plain PyTorch").check()
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("[...document.querySelectorAll('body *')].filter(e => e.checkVisibility() && e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.wide, .timeline, details, .skip')).length") == 0
    unified = page.locator("article[id='05_grad_accum'] .plain .same .old").first.is_hidden()
    assert unified == (width == 360)
    light, dark = page.evaluate("[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color].map(c => c.match(/[0-9.]+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0))")
    assert (light > dark) == (scheme == "light")


def test_on_paper(visit, tmp_path):
    page = visit()
    page.pdf(path=tmp_path / "page.pdf", format="A4", print_background=False)
    assert page.locator("details[open]").count() == 0  # a handout has answers only if they were open
    page.get_by_text("Show all answers").click()
    assert page.locator("details:not([open])").count() == 0
    page.locator("#theme").click()
    page.locator("#theme").click()
    assert page.locator("#theme").inner_text() == "Theme: dark"
    page.set_viewport_size({"width": 703, "height": 1000})  # A4 with margins
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
    assert page.evaluate("[...document.querySelectorAll('main *')].filter(e => e.checkVisibility() && e.getBoundingClientRect().right > innerWidth + 4).length") == 0  # nothing is cut off
    assert page.locator(".dataset:not([hidden]) .paper").is_visible()
    assert page.locator("nav").is_hidden() and page.locator("#compare").is_hidden()
    assert page.locator("article[id='05_grad_accum'] .diff").first.is_visible()


def test_names_in_records_are_not_code(visit):
    page = visit()
    assert page.locator("img").count() == 0 and page.title() != "taken"
    assert any(HOSTILE in text for text in page.locator("#dataset option").all_inner_texts())


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a git checkout")
def test_predictions_and_answers_were_made_with_code_that_is_committed():
    records = [r for file in (report.TIMELINES, report.VITS) for r in json.loads(file.read_text())]
    records += [e[which] for e in exercises.read().values() for which in ("record", "against")]
    for commit in {r["git_commit"] for r in records}:
        found = subprocess.run(["git", "-C", ROOT, "cat-file", "-e", f"{commit}^{{commit}}"], capture_output=True)
        assert found.returncode == 0, f"{commit} is not in the history"
