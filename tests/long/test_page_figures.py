"""Promise: the figures that the workshop page derives from the records agree with them."""

import pytest

from shared.lab.records import measured, stored
from shared.lab.report import time_chart, timelines


def peak(record):
    return record["train"]["device_peak_gb"]


def test_timelines_are_those_of_the_command():
    for name, its in timelines.for_page().items():
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
    assert [x for x, _ in shown["line"]] == sorted((x for x, _ in shown["line"]), reverse=True)
