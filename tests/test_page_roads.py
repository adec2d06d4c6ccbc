"""Promise: the map shows every side road beside its stage, with what it needs and costs."""

import pytest
from conftest import NAMES, ROADS, ROOT, TEXT

from shared.common import scripts
from shared.lessons import side_roads
from shared.records.record import least_ms, setting
from shared.records.units import size
from shared.report import roads

pytest_plugins = "browsing"

QWEN = ["11_llm/causal", "11_llm/causal_chunked"]


@pytest.fixture(scope="module")
def drawn():
    return roads.drawn()


def test_the_whole_ladder_with_all_side_roads(drawn):
    assert [rung["script"] for rung in drawn["rungs"]] == NAMES + TEXT
    its = [(rung["script"], road["script"]) for rung in drawn["rungs"] for road in rung["roads"]]
    assert [road for _, road in its] == ROADS
    assert all(f"{road.partition('/')[0]}/train" == stage for stage, road in its)


def test_figures_are_those_of_the_records(drawn):
    records = side_roads.records()
    tops = {}
    for name in NAMES + TEXT + ROADS:
        r = records[name]
        tops[setting(r)] = max(tops.get(setting(r), 0), r["train"]["device_peak_gb"])
    assert drawn["scales"] == [(model, size(gb)) for model, gb in tops.items()]
    places = [place for rung in drawn["rungs"] for place in (rung, *rung["roads"])]
    for place in places:
        r = records[place["script"]]
        gb, script = r["train"]["device_peak_gb"], scripts.get(place["script"])
        assert place["peak"] == size(gb)
        assert place["at"]["lin"] == pytest.approx(100 * gb / tops[setting(r)])
        assert gb == tops[setting(r)] or 0 < place["at"]["log"] < 100
        assert (place["title"], place["idea"]) == (script.title, script.idea)
        assert sum(share for _, share in place["parts"]) == pytest.approx(1, abs=0.01)


def test_a_side_road_is_compared_with_what_it_changes(drawn):
    records = side_roads.records()
    for road in (road for rung in drawn["rungs"] for road in rung["roads"]):
        name = road["script"]
        parent = scripts.get(name).parent
        assert road["parent"] == parent and (road["stage"] is not None) == (parent in NAMES + TEXT)
        assert (
            f"**Cost:** {road['cost']}\n"
            in (ROOT / name[: name.index("/")] / "README.md").read_text()
        )
        alike = setting(records[parent]) == setting(records[name])
        assert (road["peak_change"] is not None) == (road["time"] is not None) == alike
        assert alike == (name != QWEN[0])  # the first of another model, compared with none
        if alike:
            assert_told(road["time"], least_ms(records[name]) / least_ms(records[parent]))
            peaks = [records[x]["train"]["device_peak_gb"] for x in (name, parent)]
            assert_told(road["peak_change"], peaks[0] / peaks[1])


def assert_told(text, ratio):
    """What a text says must be true of the ratio of two figures."""
    if text in ("the same", "nearly the same"):
        assert ratio == pytest.approx(1, abs=5.1e-4) and (text == "the same") == (ratio == 1)
    elif text.endswith("%"):
        assert 1 + float(text[:-1]) / 100 == pytest.approx(ratio, abs=5.1e-4)
    else:
        times = float(text.partition("x")[0])
        assert times == pytest.approx(ratio if text.endswith("more") else 1 / ratio, abs=0.051)
        assert times >= 2


def test_predictions_that_tell_no_time(monkeypatch):
    older = {name: {**r, "bound": None} for name, r in side_roads.records().items()}
    monkeypatch.setattr(side_roads, "records", lambda: older)
    found = [road for rung in roads.drawn()["rungs"] for road in rung["roads"]]
    assert len(found) == len(ROADS) and all(road["time"] is None for road in found)


@pytest.mark.parametrize("width, scheme", [(1280, "light"), (360, "dark")])
def test_the_map_in_a_browser(visit, width, scheme):
    page = visit(width, 900, scheme)
    assert page.locator("nav a[href='#roads']").inner_text() == "Side roads"
    assert page.locator("#roads .side-road").count() == len(ROADS)
    records = side_roads.records()

    def length(script):
        found = page.locator(f"#roads [data-script='{script}'] .stack").first
        return found.bounding_box()["width"]

    # The bars of stages and of side roads are on one scale.
    first, kahan = "01_baseline/train", "03_bf16/kahan"
    peaks = [records[name]["train"]["device_peak_gb"] for name in (kahan, first)]
    linear = length(kahan)
    assert linear / length(first) == pytest.approx(peaks[0] / peaks[1], abs=0.01)
    page.get_by_label("logarithmic").check()
    assert length(kahan) > 1.2 * linear
    qwen = page.locator(f"#roads [data-script='{QWEN[0]}']")
    assert "Qwen/Qwen3-0.6B, 512 tokens" in qwen.inner_text()
    over = """
        [...document.querySelectorAll('#roads *')].filter(e => {
            const box = e.getBoundingClientRect();
            return box.width && (box.right > innerWidth + 1 || box.left < 0);
        }).map(e => e.className)"""
    assert page.evaluate(over) == []
    # A name is in one line where there is room for it.
    lines = """
        [...document.querySelectorAll('#roads .road-name')].filter(e => e.clientHeight > 30)
            .map(e => e.textContent)"""
    assert page.evaluate(lines) == []
    page.locator("#roads [data-script='06_sgd/adafactor'] a").first.click()
    assert page.url.partition(";")[0].endswith("#05_grad_accum-train")
