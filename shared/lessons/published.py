"""Tables of predictions beside published measurements, as stored by evidence.published.

Sizes are predicted, and times are bounded.
"""

import json
import os
import statistics

from shared.emulator.cards import CARDS
from shared.evidence import guide
from shared.evidence.published import command
from shared.evidence.published.command import SOURCES, error, reached
from shared.records import markdown, stored
from shared.records.scripts import ROOT

GUIDE_TITLE = "Hugging Face: training on one GPU"
GUIDE = "https://huggingface.co/docs/transformers/v4.21.0/perf_train_gpu_one"
GUIDE_TIMES = (
    "From texts per second of the Trainer over 128 updates, with the first one and its "
    "warm-up. Not in the bound: clipping."
)


def guides():
    """Return the rows of Hugging Face's guide of 2022, from its own records."""
    return [
        {
            "what": row.words,
            "counter": "reserved",
            "published_gb": guide.theirs(row),
            "reserved_gb": then["train"]["device_reserved_gb"],
        }
        for row, (_, then) in zip(guide.ROWS, guide.records(), strict=True)
    ]


def guide_times():
    """Return the guide's rows with comparable times, as records of shared.evidence.published."""
    return [
        {
            "source": GUIDE_TITLE,
            "what": f"BERT-large, {row.words}",
            "card": CARDS["v100"].title,
            "devices": 1,
            "published_ms": guide.BATCH_SIZE / row.speed * 1e3,
            "bound": then["bound"],
        }
        for row, (_, then) in zip(guide.ROWS, guide.records(), strict=True)
    ]


def timed():
    """Return the records with published times, those nearest to the bound first."""
    records = [r for r in json.loads(stored.PUBLISHED.read_text()) if r["published_ms"]]
    return sorted([*records, *guide_times()], key=reached, reverse=True)


def speeds(folder):
    """Return the table of published times beside the bound, in Markdown."""
    found = timed()
    fractions = [reached(r) for r in found]
    urls = {**{source["title"]: source["url"] for source in SOURCES}, GUIDE_TITLE: GUIDE}
    lines = [("", "GPU", *command.TIMES, "source")]
    for r in found:
        gpus = f"{r['devices']} x {r['card']}" if r["devices"] > 1 else r["card"]
        lines.append((r["what"], gpus, *command.times(r), f"[{r['source']}]({urls[r['source']]})"))
    said = (
        f"Of {len(found)} published runs, the median reaches "
        f"{statistics.median(fractions):.0%} of the speed that the bound allows, the best "
        f"{max(fractions):.0%}, the last {min(fractions):.0%}."
    )
    notes = ["- {title}: {times}".format(**s) for s in SOURCES if "times" in s]
    notes.append(f"- {GUIDE_TITLE}: {GUIDE_TIMES}")
    return markdown.text(said, lines, markdown.folded("What the published times include", notes))


def part(folder):
    """Return the tables of sizes of all sources, in Markdown."""
    records = json.loads(stored.PUBLISHED.read_text())
    texts = os.path.relpath(ROOT / "shared" / "text" / "README.md", folder)
    pieces = []
    for source in SOURCES:
        if rows := command.table([r for r in records if r["source"] == source["title"]]):
            pieces += ["[{title}]({url}). {note}".format(**source), [command.HEADING, *rows]]
    pieces.append(
        f"[{GUIDE_TITLE}]({GUIDE}). BERT-large, 512 tokens, V100 with 16 GB; "
        "`nvidia-smi` less the kernels. PyTorch of January 2022 is imitated; more on "
        f"[the page of language models]({texts}#beside-a-published-measurement)."
    )
    pieces.append([command.HEADING, *command.table(guides())])
    return markdown.text(*pieces, _origin(records[0]))


def unedited(folder):
    """Return the table of third-party scripts: results of unedited runs, or why there are none."""
    records = [r for r in json.loads(stored.PUBLISHED.read_text()) if r["script"]]
    ran, urls = [r for r in records if "why" not in r], {s["title"]: s for s in SOURCES}
    lines = [command.SCRIPTS]
    for r, (script, *cells) in zip(records, command.scripts(records), strict=True):
        source = urls[r["source"]]
        link = f"[{script.partition(' ')[0]}]({source['repository']}/tree/{source['commit']})"
        lines.append((link, *cells))
    repositories = {s["repository"] for s in SOURCES if "commit" in s}
    said = f"{len(ran)} of {len(records)} scripts of {len(repositories)} repositories run."
    return markdown.text(said, lines, _origin(records[0]))


def _origin(record):
    made = (
        f"Predicted with `{record['command']}`; torch {record['versions']['torch']}, "
        f"{record['date']}, commit {record['git_commit']}; records in "
        f"`{stored.PUBLISHED.relative_to(ROOT)}`."
    )
    return markdown.folded(markdown.ORIGIN, [made])


def summary(folder):
    """Return a sentence on the errors for the sources whose settings are known."""
    records = [r for r in json.loads(stored.PUBLISHED.read_text()) if r["published_gb"]]
    known = {s["title"] for s in SOURCES if s.get("complete", True)}
    # A figure that was published for two runs counts once.
    once = {(r["source"], r["published_gb"]): r for r in records if r["source"] in known}
    errors = [abs(error(r)) for r in (*once.values(), *guides())]
    near = sum(e <= 0.05 for e in errors)
    sources = len({r["source"] for r in records}) + 1
    return (
        f"{len(records) + len(guides())} figures of {sources} sources. Of the {len(errors)} whose "
        f"settings are known or nearly so, {near} are predicted within 5 %; the median error is "
        f"{statistics.median(errors):.1%}."
    )
