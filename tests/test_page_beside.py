"""Promise: a measurement on the page has its prediction beside it, if one of the same settings is
stored, and none otherwise."""

import json

import pytest
from workshop_page import RECORD

from shared.lessons import on_cpu, stored
from shared.predict.jobs import run_jobs
from shared.records.record import TINY_MEASURED, by_script, read, read_list
from shared.records.units import size
from shared.report import beside, charts

pytest_plugins = "browsing"

TINY = by_script(read(TINY_MEASURED)[0])
TEXT = TINY["11_llm/before"]
GPU = "06_sgd/train"
OTHER_SETTINGS = [
    (RECORD, change)
    for change in (
        {"script": "99_mine/train"},
        {"model": "vit_l_16"},
        {"image_px": 48},
        {"batch_size": 32},
        {"micro_batch_size": 4},
        {"world_size": 2},
        {"precision": "bf16-true"},
        {"dataset": "fake"},
        {"steps": 1},
        {"steps": 20, "resumed_at": 19},
    )
]
OTHER_SETTINGS += [
    (TEXT, change)
    for change in ({"input_shapes": None}, {"input_shapes": [[12, 512]] * 3}, {"max_length": 256})
]


def written(folder, *records):
    file = folder / "mine.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return charts.measurements(file)


def test_a_file_of_two_models_shows_both(tmp_path):
    larger = {**TINY["06_sgd/train"], "model": "vit_l_16", "image_px": 224}
    shown = written(tmp_path, *TINY.values(), larger)
    scripts = {data["setting"]: [row["script"] for row in data["rows"]] for data in shown}
    assert len(scripts) == 3 and all("06_sgd/train" in s for m, s in scripts.items() if "vit" in m)


def test_all_of_the_tiny_ladder_has_a_prediction():
    shown = charts.measurements(TINY_MEASURED) + charts.measurements(stored.TINY_SIDE_ROADS)
    predicted = by_script(read_list(stored.TINY))
    rows = {row["script"]: row for data in shown for row in data["rows"]}
    assert rows.keys() == predicted.keys() == {r["script"] for r in on_cpu.measured()}
    for r in on_cpu.measured():
        second, peak = rows[r["script"]]["foreseen"], predicted[r["script"]]["train"]
        assert second["peak"] == size(peak["device_peak_gb"])
        same = peak["device_peak_gb"] == r["train"]["device_peak_gb"]
        assert (second["difference"] == "same to the byte") == same
        assert peak["device_peak_gb"] == pytest.approx(r["train"]["device_peak_gb"], rel=0.01)
    assert all(data["note"] and len(data["origins"]) == 2 for data in shown)


def test_what_is_stored_is_what_is_predicted():
    (r,) = run_jobs([(on_cpu.predicted, TEXT)])
    then = by_script(read_list(stored.TINY))[r["script"]]
    same = r["versions"]["torch"] == then["versions"]["torch"]
    near = pytest.approx(then["train"]["device_peak_gb"], rel=1e-9 if same else 0.01)
    assert r["train"]["device_peak_gb"] == near
    assert r["input_shapes"] == then["input_shapes"] == TEXT["input_shapes"]


def test_own_records_of_another_cpu(tmp_path):
    other = {**TINY[GPU], "device": "another CPU"}
    other["train"] = {**other["train"], "device_peak_gb": other["train"]["device_peak_gb"] / 1.03}
    (data,) = written(
        tmp_path, {**RECORD, "device": "another CPU"}, other, {**RECORD, "script": "x"}
    )
    found = {row["script"]: row["foreseen"] for row in data["rows"]}
    assert found["x"] is None
    assert found["01_baseline/train"]["difference"] == "same to the byte"
    assert found[GPU]["difference"] == "+3.0%"
    assert "2 of 3 measurements" in data["note"]
    assert f"The largest difference is +3.0%, in {GPU}; + is more" in data["note"]
    heads, rows = data["table"]
    assert heads[:4] == ["script", "measured", "predicted", "difference"]
    assert [row[3] for row in rows] == ["same to the byte", "+3.0%", ""]


@pytest.mark.parametrize("record, change", OTHER_SETTINGS, ids=lambda value: str(value)[:40])
def test_nothing_stands_beside_other_settings(record, change, tmp_path):
    (data,) = written(tmp_path, record)
    assert data["beside"] and data["rows"][0]["foreseen"]
    (data,) = written(tmp_path, {**record, **change})
    assert not data["beside"] and data["rows"][0]["foreseen"] is None
    assert data["note"] == "No stored prediction has the settings of these measurements."
    assert "predicted" not in data["table"][0]


@pytest.mark.parametrize(
    "device, file, note",
    [
        ("NVIDIA A100-SXM4-80GB", stored.PREDICTED, "Predicted for: A100 80 GB."),
        ("NVIDIA H100 80GB HBM3", stored.CARDS, "Predicted for: H100 80 GB."),
        ("NVIDIA L4", stored.PREDICTED, "A100 80 GB; not for the card measured on."),
        ("NVIDIA A100-SXM4-40GB", stored.PREDICTED, "A100 80 GB; not for the card measured on."),
    ],
)
def test_of_a_gpu(device, file, note, tmp_path):
    predicted = by_script(read_list(file))[GPU]
    text = by_script(read_list(file))["11_llm/before"]
    gpu = {"device": device, "dataset": "mine", "steps": 9}
    shapes = {"input_shapes": [[12, 512]] * 3}
    found = written(tmp_path, {**predicted, **gpu}, {**text, **gpu, **shapes})
    for data, its in zip(found, (predicted, text), strict=True):
        assert data["rows"][0]["foreseen"]["peak"] == size(its["train"]["device_peak_gb"])
        assert data["rows"][0]["foreseen"]["reserved"]
        assert data["note"].endswith(note)
    # Shorter texts need less than what is predicted for the longest.
    shorter = {"input_shapes": [[12, 512], [12, 300]]}
    assert not written(tmp_path, {**text, **gpu, **shorter})[0]["beside"]


def test_differences():
    told = {1e-9: "+1 bytes", 0: "same to the byte", 0.02: "+2.0%", -0.5: "-50.0%"}
    assert {more: beside.difference(1.0, 1 + more) for more in told} == told


@pytest.mark.parametrize("width", [360])
def test_two_bars_on_one_axis(visit, width):
    page = visit(width)
    options = page.locator("#dataset option").all_inner_texts()
    name = next(text for text in options if text.startswith("vit_tiny") and "side" not in text)
    page.get_by_label("What").select_option(label=name)
    shown = page.locator(".dataset:not([hidden])")
    assert shown.get_by_text("below, hatched: predicted").is_visible()
    bars = shown.locator(".bar")
    assert bars.count() == bars.locator(".foreseen-peak").count() == 10
    predicted = by_script(read_list(stored.TINY))
    for scale in ("linear", "logarithmic"):
        page.get_by_label(scale).check()
        for script in ("01_baseline/train", "04_batchsize/train"):
            bar = shown.locator(f".bar[data-script='{script}']")
            above, below = (
                bar.locator(f".track > .{part}").bounding_box() for part in ("stack", "foreseen")
            )
            assert below["x"] == above["x"] and below["y"] >= above["y"] + above["height"]
            assert below["height"] < above["height"]
            same = predicted[script]["train"]["device_peak_gb"]
            ratio = same / TINY[script]["train"]["device_peak_gb"]
            if scale == "linear":
                assert below["width"] / above["width"] == pytest.approx(ratio, abs=0.01)
            peak = size(same)
            label = bar.locator("a").get_attribute("aria-label")
            assert f"predicted {peak}, same to the byte" in label
            assert bar.locator(".foreseen-peak").inner_text() == peak
    bars.nth(1).locator("a").focus()
    assert "predicted 71.3 MB: same to the byte" in bars.nth(1).locator(".tip").inner_text()
    shown.locator("summary").click()
    table = shown.locator("table")
    assert table.locator("tbody tr").count() == 10
    assert "117.2 MB" in table.locator("tbody tr").first.inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_predictions_have_their_table_too(visit):
    page = visit()
    shown = page.locator(".dataset:not([hidden])")
    assert shown.locator(".foreseen").count() == 0
    shown.locator("summary").click()
    heads = shown.locator("thead th").all_inner_texts()
    assert heads[:4] == ["script", "predicted", "reserved", "published in 2023"]
    first = stored.predictions()["01_baseline/train"]["train"]
    cells = shown.locator("tbody tr").first.locator("th, td").all_inner_texts()
    assert cells[1] == size(first["device_peak_gb"])
    assert cells[heads.index("activations")] == size(first["breakdown_gb"]["activations"])
