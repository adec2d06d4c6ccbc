"""Promise: the figures that the workshop page derives from the records agree with them."""

import json
import math
import re

import pytest
from conftest import ROADS

from shared.lab.lessons import side_roads
from shared.lab.records import markdown, measured, scripts, stored
from shared.lab.records.reading import setting
from shared.lab.report import charts, command, page, time_chart, timelines
from shared.run.errors import UserError

TINY = stored.measurements(stored.TINY_MEASURED)
GPU = "06_sgd/train"


def peak(record):
    return record["train"]["device_peak_gb"]


def test_side_roads_are_compared_with_what_they_change():
    records = side_roads.records()
    for name in ROADS:
        now, before = records[name], records[scripts.get(name).parent]
        if setting(now) != setting(before):
            continue
        text, ratio = markdown.compared(peak(before), peak(now)), peak(now) / peak(before)
        if text in ("the same", "nearly the same"):
            assert (text == "the same") == (ratio == 1) and ratio == pytest.approx(1, abs=5.1e-4)
        elif text.endswith("%"):
            assert 1 + float(text[:-1]) / 100 == pytest.approx(ratio, abs=5.1e-4)
        else:
            times = ratio if text.endswith("much") else 1 / ratio
            assert times >= 2 and float(text.partition("x")[0]) == pytest.approx(times, abs=0.051)


def test_timelines_are_those_of_the_command():
    for name, its in timelines.for_page(timelines.of_all()).items():
        r = stored.predictions()[name]
        total = [sum(column) for column in zip(*its["device"].values())]
        asked_for = peak(r) - r["train"]["breakdown_gb"].get("rounding", 0)
        assert max(total) == pytest.approx(asked_for * 1e3, rel=0.01)
        module = its["modules"][total.index(max(total))]
        assert its["texts"][module] == r["peak_at"]["train"]["module"]


def test_the_points_of_memory_against_time_are_those_of_the_records():
    """Every point is within the axes, and the line goes from few images at a time to many."""
    shown = time_chart.chart()
    for each in shown["points"]:
        assert 0 < each["x"] < 100 and 0 < each["y"] < 100
    by_label = {(p["stage"], p["label"]): p for p in shown["points"]}
    first, last = (measured.updates("06_sgd/train", *sizes) for sizes in ((16, 4), (128, 32)))
    for run in (first, last):
        its = by_label["06_sgd/train", f"{run.at_a_time} at a time"]
        assert its["figures"] == f"{run.peak_gb:.2f} GB, {run.median / run.batch_size:.1f} ms"
        assert (its["x"], its["y"]) in shown["line"]
    # A logarithmic axis: equal ratios have equal lengths.
    ticks = dict(shown["x"])
    assert ticks["10 ms"] - ticks["5 ms"] == pytest.approx(ticks["2 ms"] - ticks["1 ms"])
    apart = (by_label["06_sgd/train", f"{run.at_a_time} at a time"]["x"] for run in (first, last))
    per_image = [run.median / run.batch_size for run in (first, last)]
    wide = (ticks["2 ms"] - ticks["1 ms"]) * math.log2(per_image[0] / per_image[1])
    assert next(apart) - next(apart) == pytest.approx(wide)
    assert [x for x, _ in shown["line"]] == sorted((x for x, _ in shown["line"]), reverse=True)


def test_timelines_of_ones_own(tmp_path):
    """One is a copy of a stored timeline, and one is of a side road."""
    again, road = (
        json.loads(json.dumps(timelines.of_all()[n])) for n in (GPU, "05_grad_accum/train")
    )
    road["script"] = road["record"]["script"] = "06_sgd/adam_8bit"
    file = tmp_path / "timelines.json"
    file.write_text(json.dumps([again, road]))
    args = command.parse(["--timelines", str(file), "--out", str(tmp_path)])
    html = page.render([], args.timelines)
    titles = re.findall("<option>(.*?)</option>", html[html.index('<select id="from">') :])
    assert {f"{GPU}, vit_l_16 at 224 px", road["script"]} <= {*titles}
    assert 'id="diff-05_grad_accum-train-06_sgd-adam_8bit"' in html  # to its parent


@pytest.mark.parametrize("option", ["--timelines", "--records"])
def test_a_file_of_something_else_is_refused_in_one_line(option, tmp_path):
    (tmp_path / "file.json").write_text("[1]")
    with pytest.raises(UserError, match=rf"^{option} .*file.json: .*; pass [^\n]*$"):
        command.main([option, str(tmp_path / "file.json"), "--out", str(tmp_path)])


@pytest.mark.parametrize("option", ["--timelines", "--records"])
def test_a_field_that_is_missing_or_of_another_type_is_told_with_its_file(option, tmp_path):
    whole = TINY[GPU] if option == "--records" else timelines.of_all()[GPU]
    nothing = object()
    for field in whole:
        for other in (nothing, "text", [1], None):
            changed = {**whole, field: other}
            if other is nothing:
                del changed[field]
            text = json.dumps(changed if option == "--records" else [changed])
            (tmp_path / "file.json").write_text(text + "\n")
            try:
                args = command.parse([option, str(tmp_path / "file.json"), "--out", str(tmp_path)])
                page.embedded(timelines.for_page(timelines.with_files(args.timelines)))
                charts.datasets(args.records)
            except UserError as error:
                assert re.fullmatch(rf"{option} .*file.json: .*; pass .*", str(error))
