"""Promise: predictions beside published measurements are today's, and as near as the page says."""

import json

import pytest
from conftest import ROOT

from shared.lessons import published, stored
from shared.predict import cards
from shared.published import command
from shared.published.rows import SOURCES

ROWS = [(source, row) for source in SOURCES for row in source.rows]
# Quick ones of several kinds: DDP with its buckets, an old version's bytes, DTensors, the Trainer.
QUICK = ("ZeroRedundancy", "mixed precision", "tensor parallelism", "optimum")
# Of the sources that are complete, what is not within 5 %, as the page says.
FURTHER = {("Raschka 2023, one GPU", "bf16"), ("Lightning: tensor parallelism", "8 GPUs")}


@pytest.fixture(scope="module")
def records():
    return json.loads(stored.PUBLISHED.read_text())


def test_the_record_has_all_rows(records):
    recorded = [(r["source"], r["what"], r["counter"], r["published_gb"]) for r in records]
    assert recorded == [(s.title, row.words, row.counter, row.gb) for s, row in ROWS]
    assert len(SOURCES) + 1 >= 8 and len(ROWS) + len(published.guides()) >= 20
    for source, row in ROWS:
        assert source.url.startswith("https://") and source.note.endswith(".")
        assert row.card in cards.CARDS and row.counter in ("allocated", "reserved")


def test_quick_rows_are_as_recorded(records):
    chosen = [s for s in SOURCES if any(word in s.title for word in QUICK)]
    assert len(chosen) == len(QUICK)
    titles = {source.title for source in chosen}
    now = command.predicted(chosen)
    then = [r for r in records if r["source"] in titles]
    for a, b in zip(now, then, strict=True):
        same = a["versions"] == b["versions"]
        for name in ("allocated_gb", "reserved_gb"):
            assert a[name] == pytest.approx(b[name], rel=1e-9 if same else 0.02), a["what"]


def test_complete_rows_are_within_5_percent(records):
    complete = {source.title for source in SOURCES if source.complete}
    off = {
        (r["source"], r["what"])
        for r in records
        if r["source"] in complete and abs(command.error(r)) > 0.05
    }
    assert off == FURTHER
    assert len(complete) >= 7


def test_a_reader_on_a_t4_printed_these_bytes(records):
    """Without cuBLAS, whose workspaces PyTorch 1.11 did not count, nothing is left unexplained."""
    (r,) = [r for r in records if "T4" in r["source"]]
    assert r["allocated_gb"] * 1e9 == pytest.approx(1_350_681_600, abs=0.5)


def test_the_page_sums_up(records):
    said = published.summary(ROOT / "shared")
    assert said in (ROOT / "shared" / "README.md").read_text()
    assert f"{len(records) + 9} figures of {len(SOURCES) + 1} sources" in said


def test_only_some(capsys):
    records = command.main(["--only", "T4"])
    assert len(records) == 1 and "1.35 GB" in capsys.readouterr().out
    with pytest.raises(command.UserError, match="--only K80: no source is called so; there are "):
        command.main(["--only", "K80"])
