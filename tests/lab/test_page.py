"""Promise: the workshop page is one file, made from the scripts and stored records alone."""

import html
import re

import pytest
from conftest import NAMES, PLAIN, ROOT, TEXT, run
from helpers.emulated import NO_COMPILER

from shared.lab.records import scripts, stored
from shared.lab.records.exercises import of_page

FETCHED = r"<(?!a\b)\w+[^>]*\s(?:src|srcset|poster|data|href)=(?![\"']data:)"
FETCHED += r"|@import|\burl\(|\bfetch\(|\bimport\(|XMLHttpRequest|WebSocket|EventSource|sendBeacon"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    out = tmp_path_factory.mktemp("page") / "site"
    printed = run("-m", "shared", "report", "--out", out, **NO_COMPILER)
    assert str(out / "index.html") in printed
    assert [file.name for file in out.iterdir()] == ["index.html"]
    return (out / "index.html").read_text()


def bare(text):
    return html.unescape(re.sub(r"<[^>]*>", "", text))


def test_it_is_one_file(page):
    assert re.findall(FETCHED, page) == [] and 1e6 < len(page.encode()) <= 3e6


def test_it_has_every_stage_with_its_peak_and_exercises(page):
    for name in NAMES + TEXT:
        begin = page.index(f'<article id="{name.replace("/", "-")}"')
        article = page[begin : page.index("</article>", begin)]
        assert f"{stored.predictions()[name]['train']['device_peak_gb']:.2f} GB" in article
        asked = of_page(name.split("/")[0]) if name.endswith("/train") else []
        assert article.count("<summary>Answer</summary>") == len(asked)
        assert all(f"<pre><code>{html.escape(e.command)}</code></pre>" in article for e in asked)


def test_its_diffs_are_those_of_the_files(page):
    """All lines are there but docstrings and lines far from a change."""
    cell = r'<td class="n">(\d*)</td><td class="(?:old|new)">(.*?)</td>'
    table = r'<table class="diff">\n<caption>(.*?)</caption>(.*?)</table>'
    shown = dict(re.findall(table, page, re.DOTALL))
    pairs = {f"{a} → {b}" for chain in (NAMES, TEXT, PLAIN) for a, b in zip(chain, chain[1:])}
    assert pairs < {*shown}
    for pair, table in shown.items():
        files = [(ROOT / f"{name}.py").read_text().splitlines() for name in pair.split(" → ")]
        changed = [[*range(scripts.get(name).start)] for name in pair.split(" → ")]  # docstrings
        for kind, row in re.findall(r'<tr class="(same|changed|added|removed)">(.*?)</tr>', table):
            for side, (n, text) in enumerate(re.findall(cell, row)):
                assert not n or bare(text) == files[side][int(n) - 1], pair
                changed[side].extend([int(n) - 1] if n and kind != "same" else [])
        for its, gone in zip(files, changed):
            its[:] = [line for n, line in enumerate(its) if n not in gone]
        assert files[0] == files[1] and any(len(gone) > 1 for gone in changed), pair
