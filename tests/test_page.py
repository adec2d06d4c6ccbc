"""Promise: the workshop page shows what scripts and records say, in one file."""

import json
import re

import pytest
from conftest import NAMES, TEXT
from workshop_page import RECORD, written

from shared.common import scripts
from shared.common.errors import UserError
from shared.lessons import exercises, stored
from shared.records.record import TINY_MEASURED, read
from shared.records.units import size
from shared.report import command, page, side_by_side

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


def test_one_file_and_pictures(out):
    html = (out / "index.html").read_text()
    assert len(html.encode()) <= 3_000_000
    assert not re.search(r"""(src|href)=["']?(https?:|//)|@import|url\(\s*["']?http""", html)
    assert len(list(out.glob("timeline-*.png"))) == len(NAMES + TEXT)
    assert len(list(out.glob("bars-*.png"))) >= 3


def test_what_is_shown_is_what_was_recorded(out):
    html = (out / "index.html").read_text()
    predicted = stored.predictions()
    for name in NAMES + TEXT:
        assert f'<article id="{name.replace("/", "-")}">' in html
        assert size(predicted[name]["train"]["device_peak_gb"]) in html
    for r in (predicted["01_baseline/train"], *read(TINY_MEASURED)[0]):
        assert f"{r['date']}, commit {r['git_commit']}" in html
        assert r["device"].split(",")[0] in html
    for e in exercises.every():
        assert f"<pre><code>{e.command}</code></pre>" in html
    assert html.count("<details><summary>Answer</summary>") == len(exercises.every())


def test_timelines_are_of_the_predictions():
    moments = {m["script"]: m for m in page.moments_of_all()}
    assert list(moments) == NAMES + TEXT
    for name, r in stored.predictions().items():
        total = [sum(column) for column in zip(*moments[name]["device"].values())]
        assert max(total) == pytest.approx(r["train"]["device_peak_gb"] * 1e3, abs=0.1)
        drawing, held = page.timelines()[name]
        assert set(held) >= {*moments[name]["device"]}
        number, unit = re.search(r">([\d.]+) (GB|MB), ", drawing).groups()
        assert float(number) * {"GB": 1e3, "MB": 1}[unit] == pytest.approx(max(total), rel=0.005)
        assert r["peak_at"]["train"]["module"] in drawing
        # The page sets the colours, for light and dark.
        assert not re.search("#[0-9a-f]{3}", drawing) and "<script" not in drawing


def test_cards_are_of_the_models_in_the_repository():
    models = {model: rows for model, _, rows in page.cards()}
    there = {model.partition(" ")[0].rstrip(",") for model in models}
    assert there >= {"vit_b_16", "vit_l_16", "vit_h_14", *stored.text_records()}
    for rows in models.values():
        assert len(rows) >= 8 and rows[-1][2] < rows[0][2]


def test_without_records(monkeypatch):
    monkeypatch.setattr(stored, "results", lambda: [])
    html, chosen = page.render([])
    assert [data["name"] for data in chosen] == [
        "vit_l_16 at 224 px, predicted for GPUs",
        "distilbert-base-uncased, 512 tokens, predicted for GPUs",
    ]
    assert "What it costs" not in html and "Does it fit?" in html


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
    # Nothing is left out.
    assert rest == [line for m, line in enumerate(new, 1) if m not in come]
    assert sorted(gone) == gone and sorted(come) == come


def test_words_that_differ():
    old, new = "    precision='32-true',  # a", "        precision='bf16-mixed',  # a"
    spans = side_by_side.words(old, new)
    marked = [[line[a:b] for a, b in side] for line, side in zip((old, new), spans)]
    assert marked == [["32", "true"], ["bf16", "mixed"]]
    pairs = side_by_side.together(["a = 1", "print(a)"], ["x = [2]", "a = 1.0", "print(a)"])
    assert pairs == [(None, 0), (0, 1), (1, 2)]
    assert side_by_side.together(["a", "b"], []) == [(0, None), (1, None)]
