"""Promise: the workshop page shows what scripts and records say, in one file."""

import json
import re

import pytest
from conftest import NAMES, ROADS, ROOT, TEXT
from workshop_page import RECORD, written

from shared.common import scripts
from shared.common.errors import UserError
from shared.lessons import exercises, stored
from shared.predict import cards, way
from shared.predict import command as predictor
from shared.records.record import TINY_MEASURED, by_script, most_per_second, read, read_list
from shared.records.units import size
from shared.report import charts, command, page, price, side_by_side
from shared.report import moments as shown_moments

DIFFS = [
    ("01_baseline/plain", "01_baseline/train"),
    *zip(NAMES, NAMES[1:]),
    ("07_init_module/plain", "08_fsdp/plain"),
    tuple(TEXT),
]
PEAKS = (None, 0, -1, float("nan"), float("inf"), "big")
WRONG = [{"train": {**RECORD["train"], "device_peak_gb": peak}} for peak in PEAKS]
WRONG += [{"versions": []}, {"date": None, "versions": {}}, {"load": None}]
NO_RECORDS = [
    (None, "there are no records in it"),
    ("", "there are no records in it"),
    ("{}\n", "there are no records in it"),
    ('{"stage": "01_baseline"}\n', "there are no records in it"),
    (json.dumps({**RECORD, "script": 1}), "there are no records in it"),
    ('{"script": "01_baseline/train"}\n', "these are no records"),
    (b"\xff\xfe", "these are no records"),
    *((json.dumps({**RECORD, **change}), "these are no records") for change in WRONG),
]


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return written(tmp_path_factory.getbasetemp())


def test_one_file(out):
    html = (out / "index.html").read_text()
    assert len(html.encode()) <= 6_000_000
    assert not re.search(
        r"""src=["']?(https?:|//)|<link[^>]*http|@import|url\(\s*["']?http""", html
    )
    assert not list(out.glob("*.png"))


def test_slides(tmp_path, monkeypatch):
    """Of a few; the others are drawn in the same way."""
    few = {name: shown_moments.of_all()[name] for name in ("06_sgd/train", "10_offload/train")}
    monkeypatch.setattr(shown_moments, "of_all", lambda: few)
    assert command.slides(charts.datasets()[:1], tmp_path) == 3
    files = {"bars-1.png", *(f"timeline-{name.replace('/', '-')}.png" for name in few)}
    assert {file.name for file in tmp_path.iterdir()} == files


def test_timelines_of_ones_own(tmp_path):
    """Here they are those of the repository again, of another model, and of a side road."""
    stage, road, other = (
        json.loads(json.dumps(shown_moments.of_all()[name]))
        for name in ("06_sgd/train", "05_grad_accum/train", "09_act_ckpt/train")
    )
    road["script"] = road["record"]["script"] = "06_sgd/adam_8bit"
    other["record"]["model"] = "vit_b_16"
    file = tmp_path / "timelines.json"
    file.write_text(json.dumps([stage, road, other]))
    args = command.parse(["--timelines", str(file), "--out", str(tmp_path)])
    html, _ = page.render([], args.timelines)
    titles = re.findall("<option>(.*?)</option>", html[html.index('<select id="from">') :])
    own = {title for title in titles if title not in NAMES + TEXT}
    first = "06_sgd/train, vit_l_16 at 224 px"
    assert {first, "06_sgd/adam_8bit", "09_act_ckpt/train, vit_b_16 at 224 px"} <= own
    assert 'id="diff-05_grad_accum-train-06_sgd-adam_8bit"' in html  # to its parent
    for wrong in ("[1]", "[]", "{}x", '[{"script": "06_sgd/train"}]', '{"a": 1}', "null"):
        file.write_text(wrong)
        with pytest.raises(UserError, match="these are no timelines; pass the timelines.json"):
            command.parse(["--timelines", str(file), "--out", str(tmp_path)])


def test_what_is_shown_is_what_was_recorded(out):
    html = (out / "index.html").read_text()
    predicted = stored.predictions()
    for name in NAMES + TEXT:
        assert f'<article id="{name.replace("/", "-")}"' in html
        assert size(predicted[name]["train"]["device_peak_gb"]) in html
    for r in (predicted["01_baseline/train"], *read(TINY_MEASURED)[0]):
        assert f"{r['date']}, commit {r['git_commit']}" in html
        assert r["device"].split(",")[0] in html
    for e in exercises.every():
        assert f"<pre><code>{e.command}</code></pre>" in html
    assert html.count("<summary>Answer</summary>") == len(exercises.every())


def test_timelines_are_of_the_predictions():
    moments = shown_moments.for_page(shown_moments.of_all())
    assert list(moments) == NAMES + TEXT
    for name, r in stored.predictions().items():
        total = [sum(column) for column in zip(*moments[name]["device"].values())]
        assert max(total) == pytest.approx(r["train"]["device_peak_gb"] * 1e3, abs=0.1)
        module = moments[name]["modules"][total.index(max(total))]
        assert moments[name]["texts"][module] == r["peak_at"]["train"]["module"]
        heading, *rows = shown_moments.table(name)
        most = heading.index("most on the GPU")
        cells = [row[most].split() for row in rows]
        told = max(float(number) * {"GB": 1e3, "MB": 1}[unit] for number, unit in cells)
        assert told == pytest.approx(max(total), rel=0.005)
        assert {row[0] for row in rows} == {"forward", "backward", "step"}


def test_points_are_of_the_predictions(out):
    chart = price.chart()
    roads = [name for name in ROADS if name[:2] < TEXT[0][:2]]
    assert [p["script"] for p in chart["points"]] == NAMES + roads
    records = by_script(read_list(stored.PREDICTED) + read_list(stored.SIDE_ROADS))
    need, on_host = {}, {p["script"] for p in chart["points"] if p["host"]}
    assert {"10_offload/train"} < on_host <= {r for r in records if r.startswith("10_offload/")}
    for p in chart["points"]:
        r = records[p["script"]]
        need[p["script"]] = gb, ms = p["gb"], p["ms"]
        assert gb == r["train"]["device_peak_gb"]
        assert ms * most_per_second(r) == pytest.approx(1e3 * r["world_size"])  # of all GPUs
        assert 0 < p["x"] < 100 and 0 < p["y"] < 100
        assert (p["label"] != "") == (p["script"] in NAMES)
    # Halfway between two points is where the root of the product is.
    x, ticks = price.axis([ms for _, ms in need.values()])
    assert x(4) == pytest.approx((x(2) + x(8)) / 2) and {2, 5, 10} <= {*ticks}
    for p in chart["points"]:
        gb, ms = need[p["script"]]
        longer = {} if p["host"] else dict.fromkeys(on_host, price.HOST)
        others = [(a, b * longer.get(script, 1)) for script, (a, b) in need.items()]
        better = [a for a in others if a[0] <= gb and a[1] <= ms and a != (gb, ms)]
        assert p["best"] == (not better)
        assert p["whole"].endswith("and work on the host") == p["host"]
    best = {(p["x"], p["y"]) for p in chart["points"] if p["best"]}
    assert {*chart["line"]} == best and 3 <= len(best) < len(NAMES + roads) / 2
    assert [y for _, y in chart["line"]] == sorted(y for _, y in chart["line"])  # downwards
    html = (out / "index.html").read_text()
    (table,) = re.findall(r'<details class="figures">.*?</details>', html, re.DOTALL)
    for p in chart["points"]:
        row = next(row for row in table.split("<tr>") if f">{p['script']}</a>" in row)
        cells = re.findall(r"<td data-name.*?>(.*?)</td>", row)
        last = [p["whole"], p["by"], p["times"], p["beside"], "yes" if p["best"] else ""]
        assert [cells[0], cells[2], *cells[5:]] == [p["peak"], p["per_image"], *last]
        assert cells[1] == ", ".join(f"{label} {gb}" for label, gb, _ in p["parts"])


def test_models_are_those_in_the_repository():
    models = {m["model"]: m["rows"] for m in page.models()}
    there = {model.partition(" ")[0].rstrip(",") for model in models}
    assert there >= {"vit_b_16", "vit_l_16", "vit_h_14", *stored.text_records()}
    for rows in models.values():
        assert len(rows) >= 8 and rows[-1][2] < rows[0][2]
    for m in page.models():  # what the page tells to run is understood
        for option in ("--card=l4", "--fits=24"):
            assert predictor.parse([option, "--model", m["name"]]).names


def test_ways_are_those_of_the_command(out):
    html = (out / "index.html").read_text()
    models = [m["model"] for m in page.models()]
    of_way = r'<{0} class="of-way" data-model="(\d+)" data-card="(.*?)" hidden>(.*?)</(?:ul|table)>'
    said, rows = {}, {}
    for shown, tag, line in ((said, "ul", "li"), (rows, "div", "tr")):
        for model, card, text in re.findall(of_way.format(tag), html, re.DOTALL):
            lines = re.findall(rf"<{line}>(.*?)</{line}>", text, re.DOTALL)
            shown[models[int(model)], card] = lines
    told = json.loads(stored.WAYS.read_text())
    assert len(told) == len(said) == len(rows) and told
    for its in told:
        key, card = (its["setting"], its["card"]), cards.CARDS[its["card"]]
        assert [bare(line) for line in said[key]] == its["advice"]
        assert its["advice"] == way.advice(its["ways"], its["unit"], card)
        size = "max_length" if its["unit"] == "texts" else "image_px"
        records = [{"script": words, "way": found, size: 1} for words, found in its["ways"]]
        lines = iter(way.table(records, card))
        for cells in rows[key]:
            cells = re.findall(r"<t[hd]>(.*?)</t[hd]>", cells)
            while not (line := next(lines)).startswith(bare(cells[0])):
                assert line.startswith("Ways to")
            assert re.split("  +", line) == [bare(cell) for cell in cells if cell]
        assert next(lines) == ""  # there are no further rows


def test_without_records(monkeypatch):
    """Nor with older ones, which do not tell how long an update takes."""
    monkeypatch.setattr(stored, "results", lambda: [])
    monkeypatch.setattr(stored, "WAYS", ROOT / "nowhere.json")
    for module in (page, price):
        monkeypatch.setattr(
            module,
            "read_list",
            lambda file: [
                {key: value for key, value in r.items() if key not in ("cost", "bound")}
                for r in read_list(file)
            ],
        )
    html, chosen = page.render([])
    assert [data["name"] for data in chosen] == [
        "vit_l_16 at 224 px, predicted for GPUs",
        "distilbert-base-uncased, 512 tokens, predicted for GPUs",
    ]
    assert 'class="costs"' not in html and "Which way to my card?" in html
    assert "Memory against time" not in html and "at most" not in html


@pytest.mark.parametrize("text, wrong", NO_RECORDS)
def test_files_that_are_no_records(tmp_path, text, wrong):
    file = tmp_path / "records.jsonl"
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    told = f"{wrong}.*pass what --record or the ladder has written"
    with pytest.raises(UserError, match=told):
        command.parse(["--records", str(file), "--out", str(tmp_path)])


def test_a_torn_line_is_left_out(tmp_path, capsys):
    file = tmp_path / "records.jsonl"
    file.write_text(json.dumps(RECORD) + "\n" + json.dumps(RECORD)[:50])
    command.parse(["--records", str(file), "--out", str(tmp_path)])
    assert f"1 unreadable line in {file} left out" in capsys.readouterr().out


def test_a_folder_that_cannot_be_written():
    with pytest.raises(UserError, match="--out /proc/nowhere: .*choose another folder"):
        command.parse(["--out", "/proc/nowhere"])


def bare(html):
    text = re.sub(r"<[^>]*>", "", html)
    escaped = {"&#34;": '"', "&#39;": "'", "&lt;": "<", "&gt;": ">", "&amp;": "&"}
    for name, character in escaped.items():
        text = text.replace(name, character)
    return text


@pytest.mark.parametrize("before, after", DIFFS)
def test_side_by_side_is_the_diff(before, after):
    old, new = (scripts.get(name).lines for name in (before, after))
    rows = side_by_side.rows(before, after)
    for kind, n, left, m, right in rows:
        assert (kind == "skipped") == (n is None and m is None)
        assert n is None or bare(left) == old[n - 1]
        assert m is None or bare(right) == new[m - 1]
        assert kind != "same" or old[n - 1] == new[m - 1]
        differ = kind in ("added", "removed", "changed")
        assert not differ or (n and old[n - 1]) != (m and new[m - 1])
    gone = [n for kind, n, *_ in rows if kind in ("changed", "removed")]
    come = [m for kind, _, _, m, _ in rows if kind in ("changed", "added")]
    rest = [line for n, line in enumerate(old, 1) if n not in gone]
    # Nothing is left out but the docstring, which is in the heading.
    assert rest[1:] == [line for m, line in enumerate(new, 1) if m not in come][1:]
    assert old[0].startswith('"""') and {1}.isdisjoint({*gone, *come})
    assert sorted(gone) == gone and sorted(come) == come


def test_words_that_differ():
    old, new = "    precision='32-true',  # a", "        precision='bf16-mixed',  # a"
    spans = side_by_side.words(old, new)
    marked = [[line[a:b] for a, b in side] for line, side in zip((old, new), spans)]
    assert marked == [["32", "true"], ["bf16", "mixed"]]
    pairs = side_by_side.together(["a = 1", "print(a)"], ["x = [2]", "a = 1.0", "print(a)"])
    assert pairs == [(None, 0), (0, 1), (1, 2)]
    assert side_by_side.together(["a", "b"], []) == [(0, None), (1, None)]
