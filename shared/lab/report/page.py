"""The workshop page: one file of HTML that contains everything it shows."""

import datetime
import json
import os
import re
import tomllib
from pathlib import Path

import jinja2
from markdown_it import MarkdownIt
from markupsafe import Markup
from matplotlib.colors import to_hex

from emulated_gpu.why import reading as messages
from shared.lab.lessons import exercises, mistakes, times
from shared.lab.lessons.exercises import title
from shared.lab.records import exercises as exercise_pages
from shared.lab.records import reading, scripts, stored
from shared.lab.records.bars import COLORS
from shared.lab.report import charts, doors, lesson, side_by_side, time_chart, timelines
from shared.memory.accounting.blocks import CATEGORIES
from shared.run.record import ROOT, git_commit

TEMPLATE = Path(__file__).parent / "template"
# In this order: a later file may use what an earlier one defines.
STYLES = "base doors ladder times diff stages timeline quiz mistakes present print".split()
SCRIPTS = """base address menu doors messages why fit ladder pace stages canvas timeline quiz
mistakes theme present paper touch""".split()
# What a show of ten minutes has of the stages, besides the opening, the charts of time and the end.
SHORT = {
    "01_baseline/train": ("card", "timeline"),
    "02_mixed_precision/train": ("change", "timeline"),
    "05_grad_accum/train": ("change", "timeline"),
    "08_fsdp/train": ("change", "timeline"),
    "09_act_ckpt/train": ("change", "timeline"),
}
# A sentence or two with which the slides of a stage end; {before} and {now} are peaks.
TAKEAWAYS = tomllib.loads(Path(__file__).with_name("takeaways.toml").read_text("utf-8"))
PLAN = re.compile(r"### Plan for 90 minutes\n\n(.*?)\n\n###", re.DOTALL)


def diffs(pairs):
    """Return {(before, after): rows of side_by_side.rows()}."""
    return {pair: side_by_side.rows(*pair) for pair in pairs}


def takeaway(script):
    """Return the sentences with which the slides of a stage end."""
    records = stored.predictions()
    names = {"before": scripts.get(script).parent, "now": script}
    peaks = {
        key: f"{records[name]['train']['device_peak_gb']:.2f} GB"
        for key, name in names.items()
        if name in records
    }
    return TAKEAWAYS[script].format(**peaks)


def plan():
    """Return the teacher's plan for 90 minutes, as HTML."""
    folder = TEMPLATE.parent.relative_to(ROOT)
    text = (ROOT / folder / "README.md").read_text("utf-8")
    return lesson.markdown(PLAN.search(text)[1], str(folder))


def part(script):
    """Return the data of one stage for the page."""
    has_lesson = script.file == "train"
    tasks = exercise_pages.of_page(script.folder) if has_lesson else []
    # Only the stages of the ladder have one.
    plain = next((n for n in scripts.plain() if n.startswith(f"{script.folder}/")), None)
    return {
        "script": script.name,
        "idea": script.idea,
        "lesson": lesson.sections(script.folder) if has_lesson else {},
        "explained": f"{script.folder}/train",
        "head": lesson.head(script.folder) if has_lesson else None,
        "before": script.parent,
        "plain": plain,
        "plain_before": scripts.get(plain).parent if plain else None,
        "takeaway": takeaway(script.name),
        "source": timelines.source(script.name),
        "exercises": [(exercise, exercises.answer(exercise)) for exercise in tasks],
    }


def questions():
    """Return the questions of the quiz, {stage or exercise: "before", "before_mb" and "now_mb"}.

    The first two are what is known: its name, and its peak in MB.
    """
    records = stored.predictions()
    peaks = {}  # {stage or exercise: (name of the record before, GB before, GB now)}
    for record in records.values():
        before = records.get(scripts.get(record["script"]).parent)
        # From one model to another the peak falls for a reason that no learner could guess.
        if before and reading.setting(before) == reading.setting(record):
            both = (r["train"]["device_peak_gb"] for r in (before, record))
            peaks[record["script"]] = (before["script"], *both)
    entries = exercises.stored_entries()
    for e in exercise_pages.every():
        record, before = (entries[e.key][key] for key in ("record", "against"))
        place = e.memory[-1]  # the last of two is what the exercise is about
        both = [r[e.phase][f"{place}_peak_gb"] for r in (before, record)]
        if all(both):
            what = f"{title(before, record)}, {'loading' if e.phase == 'load' else 'training'}"
            what += ", on the host" if place == "host" else ""
            peaks[f"{e.folder}/{e.number}"] = (what, *both)
    return {
        key: {"before": what, "before_mb": before * 1e3, "now_mb": now * 1e3}
        for key, (what, before, now) in peaks.items()
    }


def number(script):
    """Return the text of a short link to a stage: its number, and the script unless train.py."""
    folder, file = script.split("/")
    return folder[:2] if file == "train" else f"{folder[:2]} {file}"


def embedded(value):
    """Return JSON that can be embedded in a script element of a page."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # A text with </script> would otherwise end the element that it is in.
    return Markup(text.replace("<", "\\u003c"))


def render():
    """Return the page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,  # else a misspelled name is an empty place
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = MarkdownIt("commonmark", {"html": False}).enable("table")
    environment.filters |= {"embedded": embedded, "number": number, "cut": lesson.cut}
    environment.filters |= {
        "lesson": lesson.markdown,
        "inline": lambda source: Markup(text.renderInline(source)),
        "id": lambda script: script.replace("/", "-"),
    }
    every = timelines.for_page()
    parts = [part(scripts.get(script)) for script in scripts.stages()]
    remedies = doors.remedies()
    shown = {(p["before"], p["script"]) for p in parts if p["before"]}
    shown |= {(p["plain_before"], p["plain"]) for p in parts if p["plain_before"]}
    first = (scripts.plain()[0], scripts.ladder()[0])  # what Fabric does
    return environment.get_template("index.html.jinja").render(
        parts=parts,
        datasets=charts.datasets(),
        diffs=diffs({first, *shown, *(remedy["pair"] for remedy in remedies.values())}),
        of_roads={remedy["pair"] for remedy in remedies.values()} - shown,
        remedies=remedies,
        messages=messages.TABLE,
        fit=doors.fit(),
        pace=doors.pace(),
        strips=doors.busy_strips(),
        plan=plan(),
        quiz=questions(),
        mistakes=mistakes.questions(),
        times=time_chart.chart(),
        first=times.which_first(None),
        short=SHORT,
        every=every,
        categories=CATEGORIES,
        colors={label: f"--{label.replace(' ', '-')}" for label in CATEGORIES},
        hexes={label: to_hex(COLORS[label]) for label in CATEGORIES},
        repository=os.environ.get("GITHUB_REPOSITORY"),  # when GitHub publishes the page
        commit=git_commit(),
        date=datetime.date.today().isoformat(),
        style=Markup("".join((TEMPLATE / f"style/{x}.css").read_text() for x in STYLES)),
        scripts=[Markup((TEMPLATE / f"script/{x}.js").read_text()) for x in SCRIPTS],
    )
